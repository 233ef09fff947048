// SPDX-License-Identifier: BSD-3-Clause
//
// What travels between the ranks in the place of a bucket of gradients: the comm hooks of c10d's
// Reducer, as in Python's register_comm_hook().
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/ddp/process_group.h"

namespace c10d {
class CommHookInterface;
class GradBucket;
}  // namespace c10d

namespace c10::ivalue {
struct Future;
}

namespace ddprun::ddp {

// Sends gradients in half the bytes and gives them back in their own type.  Float16 keeps 11 bits
// of a gradient and overflows beyond 65504; BFloat16 keeps 8 bits of any size.
enum class Compression : std::uint8_t { None, Float16, BFloat16 };

// Reduces a bucket itself.  It is called on the thread of the backward pass as soon as the bucket's
// gradients are there, on all ranks in the same order, and must not block; the future it returns
// holds a tensor like bucket.getBuffer(), flat and of its length and dtype, with the mean over the
// ranks (the hook divides).  A callback of that future may wait for another collective over shared
// memory; over Gloo, where there are several buckets, it waits for ever, as in Python.  What the
// hook or its future throws comes out of backward().  The hook lives as long as the
// DistributedDataParallel it was given to.  Needs <torch/csrc/distributed/c10d/comm.hpp>.
using CommHook =
    std::function<c10::intrusive_ptr<c10::ivalue::Future>(ProcessGroup&, c10d::GradBucket&)>;

// For hooks: divides `buffer` by the number of ranks and adds up, in place; the future holds it.
c10::intrusive_ptr<c10::ivalue::Future> mean_of(ProcessGroup& group, const at::Tensor& buffer);

// The hook of BFloat16, which c10d does not have built in.
CommHook bfloat16_hook();

// `hook` in the form that the Reducer wants.
std::unique_ptr<c10d::CommHookInterface> adapt(CommHook hook, ProcessGroup group);

}  // namespace ddprun::ddp
