// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/store_barrier.h"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "worker/ddp/error.h"
#include "worker/shm/decide/format.h"

namespace ddprun::ddp {
namespace {

std::string rank_key(const std::string& name, int rank) {
  return name + "/rank/" + std::to_string(rank);
}

}  // namespace

void store_barrier(c10d::Store& store, const std::string& name, int rank, int world_size,
                   std::chrono::milliseconds timeout) {
  const std::vector<std::uint8_t> here{'1'};
  store.set(rank_key(name, rank), here);
  // One key that the last to come sets, so that N ranks wait for N keys in all, not N times N.
  if (store.add(name + "/count", 1) == world_size) store.set(name + "/complete", here);
  try {
    store.wait({name + "/complete"}, timeout);
  } catch (const c10::Error&) {
    std::vector<int> missing;
    for (int other = 0; other < world_size; ++other) {
      if (!store.check({rank_key(name, other)})) missing.push_back(other);
    }
    if (missing.empty()) throw;
    throw DdpError(format_ranks(missing) + " of " + std::to_string(world_size) +
                   " did not come within " + format_seconds(timeout));
  }
}

void clear_store_barrier(c10d::Store& store, const std::string& name, int rank) {
  store.deleteKey(rank_key(name, rank));
  if (rank != 0) return;
  store.deleteKey(name + "/count");
  store.deleteKey(name + "/complete");
}

}  // namespace ddprun::ddp
