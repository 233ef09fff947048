// SPDX-License-Identifier: BSD-3-Clause
//
// What a node's guardian says in the node's name when the agent has been killed and no worker of it
// lives: that it has left.  The agent writes the last word down beforehand; the guardian, which has
// no event loop, delivers it by plain calls that block.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/endpoint.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

struct LastWord {
  std::string address;  // numeric, of the store where the nodes meet
  std::uint16_t port = 0;
  bool has_extensions = false;  // that store has namespaces
  std::string secret_key;       // Secret::key_text(), if the run has a secret
  bool uses_munge = false;      // if it has none: the host of that moment has its own
  std::string munge_socket;     // see Munge::load()
  // Where the run may be hosted next; those whose host is no numeric address are left out.
  std::vector<Endpoint> others{};
  std::string message;  // encoded; see member::last_message()
  // For a later agent of this machine: NodeFiles::last_word_path(), and what it is to hear.
  std::string keep_at{};
  std::string why{};
};

// As text, for a pipe.
std::string to_text(const LastWord& word);

// First keeps `why` at `keep_at`, unless that is empty.  Then delivers what to_text() wrote to the
// coordinator that is at that store by then; it need not be
// the one that was there before.  Tries for `patience` while nothing listens there.  Until that
// store takes it, each of the other places gets it, too, as it opens: for three times as long,
// since these open one after the other.  Returns whether any has taken it.  Blocks; to be called
// from a process that has nothing else to do.
bool deliver_last_word(std::string_view text, Duration patience);

}  // namespace ddprun::rendezvous
