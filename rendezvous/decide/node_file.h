// SPDX-License-Identifier: BSD-3-Clause
//
// What the agent of a node keeps in the memory of its machine, and only while it lives is the only
// one to hold: the last round that it was told of, if any, and where its run goes on.  An agent
// that comes there after it was killed says so in its name, since what a node has heard must never
// be forgotten, and looks for the run there.  rendezvous/node_files.h has the files.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/run_places.h"
#include "store/base/error.h"

namespace ddprun::rendezvous {

struct NodeFile {
  std::string boot;  // of the machine, a name that no other has: it has lost nothing since then
  std::string run;
  Died node;           // `knows` is empty: of a standby that was in no round
  RunPlaces places{};  // empty: none is known, or an older agent has written this

  bool knows_round() const { return !node.knows.by.empty(); }
};

std::string encode(const NodeFile& file);

// Fails with Errc::Protocol and what is wrong with `text`: it may have been written in part. Places
// that cannot be read are left out.
Result<NodeFile> decode_node_file(std::string_view text);

}  // namespace ddprun::rendezvous
