// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <memory>
#include <string>

#include "worker/ddp/peer_failures.h"

namespace c10d {
class ProcessGroup;
}

namespace ddprun::ddp {

// A c10d group like any other, except that the errors of its collectives on CPU tensors
// (all-reduce, broadcast, all-gather, reduce, barrier) are completed by `peer_failures`.
// c10d::Reducer waits for these in a backward pass and when it rebuilds its buckets, where no other
// code of ours runs. The group has no backend yet.
c10::intrusive_ptr<c10d::ProcessGroup> make_diagnosing_group(
    const c10::intrusive_ptr<c10d::Store>& store, std::shared_ptr<PeerFailures> peer_failures,
    int rank, int world_size);

// What the exception says, without LibTorch's stack trace.
std::string message_of(const std::exception_ptr& exception);

}  // namespace ddprun::ddp
