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

// Joins the next group of this name: returns when `world_size` ranks have called this, with the
// part "generation_<number>" of the keys that is theirs alone.  Rank 0 gives out the number and
// answers the others, so that what an earlier group, or a program that died, has left in the store
// does not matter. Each rank calls it again for the next group only after it has returned.  Throws
// as store_barrier().
std::string join_generation(c10d::Store& store, int rank, int world_size,
                            std::chrono::milliseconds timeout);

// Deletes this rank's keys of a barrier that every rank has left.
void clear_store_barrier(c10d::Store& store, const std::string& name, int rank);

}  // namespace ddprun::ddp
