// SPDX-License-Identifier: BSD-3-Clause
#include "store/memory_keeper.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

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

void MemoryKeeper::give_back_pages(std::span<char> piece) {
  static const auto kPage = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto address = reinterpret_cast<std::uintptr_t>(piece.data());
  std::uintptr_t before = (kPage - address % kPage) % kPage;
  std::uintptr_t behind = (address + piece.size()) % kPage;
  if (piece.size() <= before + behind) return;
  ::madvise(piece.data() + before, piece.size() - before - behind, MADV_DONTNEED);
}

}  // namespace ddprun::store
