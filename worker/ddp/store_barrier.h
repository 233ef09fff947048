// SPDX-License-Identifier: BSD-3-Clause
//
// A barrier through the store.  It is slower than a collective, but it needs no connection between
// ranks and can name the ranks that did not come.
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
void store_barrier(c10d::Store& store, const std::string& name, int rank, int world_size,
                   std::chrono::milliseconds timeout);

// Deletes this rank's keys of a barrier that every rank has left.
void clear_store_barrier(c10d::Store& store, const std::string& name, int rank);

}  // namespace ddprun::ddp
