// SPDX-License-Identifier: BSD-3-Clause
//
// What the ranks tell each other through the store when a reduction goes wrong.  A transport knows
// that nothing came, or that a connection is gone; the ranks know who left out which parameters and
// who has given up waiting, and an error says that as well.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "store/base/endpoint.h"

namespace c10d {
class Store;
}

namespace ddprun::ddp {

// "rank 1 left out the parameters a and b: ...", for what each of some ranks has left out; with
// what to do about it.
std::string left_out_sentence(const std::map<int, std::string>& parameters_by_rank);

// One rank's view of what goes wrong in a group.
//
// Threads: any; calls of explain() may wait for the other ranks.  No call throws but check(): where
// the store is lost as well, the other ranks' part of the story is left out.
class Incidents {
 public:
  // `store` is the group's own part of the worker store; `timeout` is that of its collectives.
  Incidents(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
            std::chrono::milliseconds timeout);

  // Where this rank's Presence listens; only ranks that have said so are ever known to be gone.
  void set_presence(const Endpoint& presence);

  // A backward pass of this rank has ended, and the parameters `names` have had no gradient, so
  // that a reduction which the others wait for has not begun.  `owner` tells wrapped modules apart.
  void set_left_out(const void* owner, const std::vector<std::string>& names);

  // What `owner` had left out has had its gradient by now.
  void clear_left_out(const void* owner);

  // Throws DdpError when this rank's last backward pass left parameters out, for then the others
  // wait for a reduction that will not come, and would take any other message for it.
  void check() const;

  // `problem`, a transport's words, with what the ranks have to say about it before: who left out
  // which parameters; whose process is gone, or who did not come where it is a time-out, which
  // takes up to 2 s and 5 s to find out.
  std::string explain(const std::string& problem);

 private:
  std::map<int, std::string> reports(const char* kind) const;
  std::string missing_after_timeout();
  std::string gone() const;
  std::string reported_gone() const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::map<const void*, std::string> left_out_;  // of this rank, by wrapped module
};

}  // namespace ddprun::ddp
