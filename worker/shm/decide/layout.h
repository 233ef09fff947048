// SPDX-License-Identifier: BSD-3-Clause
//
// Where things lie in the shared segment: a header, the header of each rank (segment.h), then the
// slots.  Every rank has a few slots of its own, which it writes and its peers read; chunk number c
// of the group travels through slot c modulo their count.  All sizes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddprun::ddp::shm {

inline constexpr std::size_t kLineBytes = 64;          // of the cache; everything begins on one
inline constexpr std::size_t kHeaderBytes = 4096;      // of the segment's own header
inline constexpr std::size_t kRankHeaderBytes = 1024;  // of one rank's header
inline constexpr std::size_t kSlotHeadBytes = 128;     // before a slot's data: what travels in it

// More ranks than this, on one node, take more memory for slots than it is worth.
inline constexpr int kMaxRanks = 64;

struct Layout {
  int ranks = 1;  // kMaxRanks at most

  // How deep the pipeline is.  At least 4: three chunks are under way at once in an all-reduce, and
  // one more lets a rank run ahead of a slower one.
  int slots = 4;

  // What one rank puts into one chunk.  The slots of all ranks together should stay in the cache
  // that the cores share; small ones cost a wake-up for less work.
  std::size_t slot_bytes = std::size_t{256} << 10;

  std::size_t rank_header_begin(int rank) const {
    return kHeaderBytes + static_cast<std::size_t>(rank) * kRankHeaderBytes;
  }
  std::size_t slot_begin(int rank, std::uint64_t chunk) const {
    std::size_t index = static_cast<std::size_t>(rank) * static_cast<std::size_t>(slots) +
                        static_cast<std::size_t>(chunk % static_cast<std::uint64_t>(slots));
    return rank_header_begin(ranks) + index * (kSlotHeadBytes + slot_bytes);
  }
  std::size_t data_begin(int rank, std::uint64_t chunk) const {
    return slot_begin(rank, chunk) + kSlotHeadBytes;
  }
  std::size_t total_bytes() const { return slot_begin(ranks, 0); }
};

}  // namespace ddprun::ddp::shm
