// SPDX-License-Identifier: BSD-3-Clause
//
// Whether all ranks can share memory, and the shared memory itself.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "worker/shm/channel.h"

namespace c10d {
class Store;
}

namespace ddprun::ddp::shm {

// Exactly one of the two is set, the same on all ranks.
struct Connection {
  std::unique_ptr<Channel> channel;
  std::string refusal;  // why there is none
};

// Agrees with the other ranks through `store`, whose keys no other group may use.  All ranks call
// it, also those that do not want shared memory.  Throws c10::Error when the store is lost, and
// DdpError, naming the ranks, when some do not come within `timeout`.
Connection connect(c10d::Store& store, int rank, int world_size, bool wants_shm,
                   std::chrono::milliseconds timeout);

}  // namespace ddprun::ddp::shm
