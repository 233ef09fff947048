// SPDX-License-Identifier: BSD-3-Clause
//
// What the id of a node says: "host-uuid.INCARNATION".  An agent that is cut off comes back as
// another incarnation of the same node.  And what the name of a coordinator says.
#pragma once

#include <string>

namespace ddprun::rendezvous::coordinator {

// The id without its incarnation.
std::string name_of(const std::string& id);

// The name of a daemon begins with this, which no name of a machine does.
inline constexpr const char* kDaemonName = "ddpd:";

// What people call the node with this name, "host-uuid".
std::string host_of(const std::string& name);

// The node whose agent has the coordinator of this name, "NODE@GENERATION", where hosts may change.
std::string hosting_node(const std::string& coordinator);

// Which agent has the coordinator of this name, as people call it: "node0 (pid 17)", or "node0".
// `unknown` where the name does not say.
std::string agent_text(const std::string& coordinator, const std::string& unknown);

// Whether `one` is an earlier incarnation than `other`, of the same node.
bool comes_before(const std::string& one, const std::string& other);

}  // namespace ddprun::rendezvous::coordinator
