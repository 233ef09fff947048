// SPDX-License-Identifier: BSD-3-Clause
//
// A meeting of all ranks in the store: slower than a collective, but one that needs no connection
// between ranks yet, and that can say who did not come.
#pragma once

#include <chrono>
#include <string>

namespace c10d {
class Store;
}

namespace ddprun::ddp {

// Returns when `world_size` ranks have called this with the same `name`, which must be used once
// only.  Throws DdpError, naming the ranks that are missing, when `timeout` passes first;
// c10::Error when the store is lost.
void meet(c10d::Store& store, const std::string& name, int rank, int world_size,
          std::chrono::milliseconds timeout);

// Deletes this rank's keys of a meeting that every rank has left.
void forget_meeting(c10d::Store& store, const std::string& name, int rank);

}  // namespace ddprun::ddp
