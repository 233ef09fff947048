// SPDX-License-Identifier: BSD-3-Clause
#include "store/memory_keeper.h"

#include <malloc.h>

#include <algorithm>

namespace ddprun::store {
namespace {

// Freed memory beyond this is given back.
constexpr std::size_t kWorthwhileBytes = 4 << 20;

}  // namespace

MemoryKeeper::MemoryKeeper() {
  ::mallopt(M_TRIM_THRESHOLD, int{kWorthwhileBytes});
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

void MemoryKeeper::give_back(std::size_t bytes) {
  most_bytes_ = std::max(most_bytes_, bytes);
  if (most_bytes_ - bytes < kWorthwhileBytes || bytes > most_bytes_ / 2) return;
  ::malloc_trim(0);
  most_bytes_ = bytes;
}

}  // namespace ddprun::store
