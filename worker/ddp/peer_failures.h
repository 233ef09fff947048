// SPDX-License-Identifier: BSD-3-Clause
//
// How ranks report failures to each other through the store.  A transport only knows that nothing
// arrived or that a connection broke.  The ranks know which rank left out which parameters and
// which rank gave up, and add that to the error.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "store/base/endpoint.h"

namespace c10d {
class Store;
}

namespace ddprun::ddp {

// "rank 1 left out the parameters a and b: ..." for each rank, and what to do about it.
std::string left_out_sentence(const std::map<int, std::string>& parameters_by_rank);

// One rank's view of the failures in a group.
//
// Threads: any; diagnose() and check_collective() may wait for the other ranks.  No call throws but
// check() and check_collective(): if the store is lost as well, the error lacks what the other
// ranks know.
class PeerFailures {
 public:
  // `store` is the group's own part of the worker store; `timeout` is that of its collectives.
  PeerFailures(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
               std::chrono::milliseconds timeout);

  // The ranks of this group have LivenessSockets; `own` is this rank's, null if it could not be
  // opened. Only ranks that have one are ever known to be gone.
  void use_liveness(const Endpoint* own);

  // A backward pass of this rank has ended without a gradient for the parameters `names`, so a
  // reduction that the others wait for has not begun.  `owner` identifies the wrapped module.
  // `may_follow`: another backward pass may bring them, with collectives in between.
  void set_left_out(const void* owner, const std::vector<std::string>& names, bool may_follow);

  // The parameters that `owner` had left out have their gradients now.
  void clear_left_out(const void* owner);

  // Throws DdpError if this rank's last backward pass left parameters out: the others still wait
  // for that reduction and would take any other message for a part of it.
  void check() const;

  // The same before a collective; returns if another pass may bring what is left out and all ranks,
  // which call this together, have left out the same.  Waits for them up to the time-out.
  void check_collective();

  // Returns `problem`, the transport's message, preceded by what the ranks know: which rank left
  // out which parameters, which process is gone (takes up to 2 s to find out), or which rank did
  // not come (up to 5 s).
  std::string diagnose(const std::string& problem);

  // "rank 1 of 2 has ended or left the group"; "" when none is seen, which takes up to 2 s.
  std::string gone_ranks() const;

 private:
  std::map<int, std::string> reports(const char* kind) const;
  std::string missing_after_timeout();
  std::string gone() const;
  std::string reported_gone() const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  bool has_liveness_ = false;
  mutable std::mutex mutex_;
  struct LeftOut {
    std::string words;
    std::vector<std::string> names;
    bool may_follow = false;
  };
  std::map<const void*, LeftOut> left_out_;  // of this rank, by wrapped module
  std::uint64_t split_collectives_ = 0;      // how often check_collective() has waited
};

}  // namespace ddprun::ddp
