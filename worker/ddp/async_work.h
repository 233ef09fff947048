// SPDX-License-Identifier: BSD-3-Clause
//
// A collective under way: what ProcessGroup's functions that end in _async return.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <vector>

namespace c10d {
class Work;
}

namespace ddprun::ddp {

class DroppedMessages;
class PeerFailures;

// A handle: copies wait for the same collective.
//
// The tensors given to the collective must not be written until it is complete, and those that it
// fills not be read; the handle keeps them alive.  Results may not reach tensors with gaps before
// wait(), so wait for each one.  Handles may be waited for in any order; the collectives run in the
// order of the calls.
//
// Threads: one at a time.  Lifetime: a handle that goes without wait() does not wait; the
// collective goes on.  So does a send or receive, and the end of the group waits for it, by the
// time-out at the latest, unless an error unwinds the stack.
class [[nodiscard]] AsyncWork {
 public:
  // Returns when the results are there, which it returns: the tensors that the collective filled,
  // in the order of the ranks where it has one for each.  Of a GPU's tensors: when work queued on
  // its current stream from now on will see them.  Again, it returns the same.  Throws DdpError as
  // the ProcessGroup's functions that wait do, again and again.
  const std::vector<at::Tensor>& wait();

  // Whether wait() would return, or throw, at once.
  bool is_completed();

 private:
  struct State;
  friend class ProcessGroup;
  friend AsyncWork make_async_work(const char*, c10::intrusive_ptr<c10d::Work>,
                                   std::vector<at::Tensor>, std::function<void()>,
                                   std::shared_ptr<PeerFailures>, std::weak_ptr<DroppedMessages>);
  explicit AsyncWork(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// For the runtime itself: the handle of `work`, which may be null where there is nothing to wait
// for.  `finish` runs once after it, on the thread that waits, and brings the `results` to their
// places.  Where the work would be cancelled with its handle, `keeper` gets it when that goes.
AsyncWork make_async_work(const char* name, c10::intrusive_ptr<c10d::Work> work,
                          std::vector<at::Tensor> results, std::function<void()> finish,
                          std::shared_ptr<PeerFailures> peer_failures,
                          std::weak_ptr<DroppedMessages> keeper);

}  // namespace ddprun::ddp
