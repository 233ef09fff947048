// SPDX-License-Identifier: BSD-3-Clause
//
// The collectives of ProcessGroup over a bare c10d group, whatever carries its tensors: each
// transport has its own gaps, which are filled here.  Gloo lacks the mean and, of what only moves
// bytes, some dtypes; it reads tensors with gaps as if they had none, and writes into the tensors
// of ranks that get no result.
//
// All ranks call the same functions in the same order.  What a rank itself has asked for wrongly is
// a DdpError before anything is sent; other exceptions are c10d's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/ddp/reduce_op.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace ddprun::ddp {

// A collective that has been started.
struct Started {
  // Null: there is nothing to wait for, as NCCL's backend says (torch 2.7) to a caller that waits.
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<at::Tensor> results;
  std::function<void()> finish;  // to run when `work` has ended well; may be null
};

// Waits until it has ended; its results.  Throws what the transport does.
std::vector<at::Tensor> complete(Started started);

// Whether the caller waits at once, which spares a thread a wake-up.
enum class Caller : std::uint8_t { Waits, GoesOn };

Started start_all_reduce(c10d::ProcessGroup& group, const at::Tensor& tensor, ReduceOp op,
                         Caller caller);
Started start_reduce(c10d::ProcessGroup& group, const at::Tensor& tensor, int root, ReduceOp op,
                     Caller caller);
Started start_broadcast(c10d::ProcessGroup& group, const at::Tensor& tensor, int root,
                        Caller caller);
Started start_all_gather(c10d::ProcessGroup& group, const at::Tensor& tensor, Caller caller);
Started start_gather(c10d::ProcessGroup& group, const at::Tensor& tensor, int root, Caller caller);
Started start_scatter(c10d::ProcessGroup& group, const at::Tensor& output,
                      const std::vector<at::Tensor>& inputs, int root, Caller caller);
Started start_reduce_scatter(c10d::ProcessGroup& group, const at::Tensor& output,
                             const std::vector<at::Tensor>& inputs, ReduceOp op, Caller caller);
Started start_all_to_all(c10d::ProcessGroup& group, const std::vector<at::Tensor>& outputs,
                         const std::vector<at::Tensor>& inputs, Caller caller);
Started start_send(c10d::ProcessGroup& group, const at::Tensor& tensor, int to, int tag);
Started start_recv(c10d::ProcessGroup& group, const at::Tensor& tensor, int from, int tag);

}  // namespace ddprun::ddp
