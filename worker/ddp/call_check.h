// SPDX-License-Identifier: BSD-3-Clause
//
// For debugging: whether all ranks call the same collectives with tensors of the same shapes.  A
// transport sees bytes: of two ranks that differ Gloo aborts one, and where the bytes are as many
// it takes one rank's columns for the other's rows.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/ddp/peer_failures.h"
#include "worker/ddp/reduce_op.h"

namespace c10d {
class Store;
}

namespace ddprun::ddp {

// One rank's call, in words.
struct Call {
  std::string words;                   // "all_reduce (sum) of Float [2, 3]"
  std::vector<std::string> tensors{};  // the same on all ranks, one by one
  std::vector<std::string> gives{};    // of an exchange: to each rank
  std::vector<std::string> takes{};    // of an exchange: from each rank
};

Call call_of(const char* name, std::optional<int> root = std::nullopt);
Call call_of(const char* name, const at::Tensor& tensor, std::optional<ReduceOp> op = std::nullopt,
             std::optional<int> root = std::nullopt);
Call call_of(const char* name, const std::vector<at::Tensor>& tensors, int root);

// Each rank gives each other one of its `inputs`, for one of that one's `outputs`.
Call call_of(const char* name, const std::vector<at::Tensor>& outputs,
             const std::vector<at::Tensor>& inputs);

// In which the calls of the ranks differ, by rank; "" when they fit each other.
std::string difference_of(const std::vector<Call>& calls);

// Compares the calls of the ranks through the store, before anything is sent.
//
// Threads: one at a time.
class CallCheck {
 public:
  // Whether a value of TORCH_DISTRIBUTED_DEBUG asks for it, as it does in Python.
  static bool is_asked_for(const std::optional<std::string>& debug_level);

  // Says that this rank wants its group's calls compared; one rank that does is enough.  Before
  // agreed() on any rank.  `store` is the group's own.
  static void ask(c10d::Store& store);

  // Null when no rank has asked.
  static std::unique_ptr<CallCheck> agreed(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                           int world_size, std::chrono::milliseconds timeout,
                                           std::shared_ptr<PeerFailures> peer_failures);

  // Returns when every rank has come with a call that fits; else every rank throws the same
  // DdpError, which has them all, and the group goes on.  Throws DdpError as well when a rank does
  // not come within the time-out, or has ended, which is seen within seconds.
  void compare(const Call& call);

 private:
  CallCheck(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size,
            std::chrono::milliseconds timeout, std::shared_ptr<PeerFailures> peer_failures);

  std::string key(std::uint64_t number, int rank) const;
  std::vector<int> wait_for(const std::vector<std::string>& keys,
                            std::chrono::milliseconds time) const;
  void wait_for_all(const Call& call) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<PeerFailures> peer_failures_;
  std::uint64_t number_ = 0;  // of the next call
};

}  // namespace ddprun::ddp
