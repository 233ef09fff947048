// SPDX-License-Identifier: BSD-3-Clause
//
// The names under which nodes and coordinator find each other in a store (rendezvous/PROTOCOL.md).
// On a server with our extensions they are in a space of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun::rendezvous::keys {

inline constexpr std::string_view kNamespace = "ddprun";

// The key that says who coordinates here: "<generation> <host> <pid>", and where the hosts of its
// runs may change " <node>@<generation>".
inline constexpr const char* kCoordinator = "ddprun/coordinator";

// A key that the host of a run sets where other hosts' stores may be met by mistake.
inline std::string home(const std::string& run) {
  return "ddprun/home/" + run;
}

// The first word of a record: a name that no other coordinator of this store has.
inline std::string generation_of(const std::string& record) {
  return record.substr(0, record.find(' '));
}

// The end of a record of a coordinator that is part of no agent.
inline constexpr const char* kDaemonMark = " daemon";
inline bool is_at_daemon(std::string_view record) {
  return record.ends_with(kDaemonMark);
}

// What a coordinator is called: where the hosts of its runs may change "<node>@<generation>", by
// which its rounds are known (RoundId::by); else its record.
inline std::string name_of_coordinator(const std::string& record) {
  std::string words = record;
  if (is_at_daemon(record)) words.resize(words.size() - std::string_view(kDaemonMark).size());
  std::string last = words.substr(words.rfind(' ') + 1);
  return last.ends_with('@' + generation_of(record)) ? last : record;
}

// The queue of all messages to the coordinator, and how the name of each such queue begins.
inline constexpr const char* kInboxes = "ddprun/inbox/";
inline std::string inbox(const std::string& record) {
  return kInboxes + generation_of(record);
}
// A key whose value changes as long as the coordinator lives; see pulse.h.
inline std::string pulse(const std::string& record) {
  return "ddprun/pulse/" + generation_of(record);
}
// A key that is there once the coordinator has given this node up, or is about to.
inline std::string given_up(const std::string& node) {
  return "ddprun/given_up/" + node;
}
// A key under which a node says what its workers do; see vitals.h.
inline std::string vitals(const std::string& node) {
  return "ddprun/vitals/" + node;
}
// Likewise the node that has the workers' store, who waits there; see worker_waits.h.
inline std::string waits(const std::string& node) {
  return "ddprun/waits/" + node;
}
// Likewise the answer of a node to a command::TakeStacks; see stacks.h.
inline std::string stacks(const std::string& node) {
  return "ddprun/stacks/" + node;
}
// Likewise a piece of the files of a node; see bundle_piece.h.  Only the host reads them.
inline constexpr const char* kBundles = "ddprun/bundle/";
inline std::string bundle(const std::string& node) {
  return kBundles + node;
}
// Likewise what its workers have drawn in the timeline; see drawn_slices.h.
inline std::string slices(const std::string& node) {
  return "ddprun/slices/" + node;
}
// The queue of all commands to one node, on one of its connections: what is under way to a broken
// one cannot be taken for what is sent to the next.  Only the host puts something there.
inline constexpr const char* kMailboxes = "ddprun/node/";
inline std::string mailbox(const std::string& node, std::uint64_t connection) {
  return kMailboxes + node + "/" + std::to_string(connection);
}

}  // namespace ddprun::rendezvous::keys
