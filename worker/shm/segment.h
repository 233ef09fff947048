// SPDX-License-Identifier: BSD-3-Clause
//
// The memory that the ranks of a node share: an anonymous file that rank 0 creates and the others
// open through /proc/<pid>/fd.  It has no name, so nothing is left behind however the ranks end;
// the kernel frees it with the last mapping.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "store/base/error.h"
#include "worker/shm/decide/fingerprint.h"
#include "worker/shm/decide/layout.h"

namespace ddprun::ddp::shm {

// Running, Left (the rank closed the group), Failed (`reason` says why, `failed_at` since when;
// both are written before).
enum class RankState : std::uint32_t { Running, Left, Failed };

// The state that one rank publishes to the others.  Only that rank writes it, except for the futex
// word, which any rank increments to wake it.
struct RankHeader {
  std::atomic<std::uint64_t> counters[3];  // by Counter; see plan.h
  alignas(kLineBytes) std::atomic<std::uint32_t> futex_word;
  std::atomic<std::uint32_t> is_asleep;
  alignas(kLineBytes) std::atomic<RankState> state;
  std::atomic<std::uint64_t> failed_at;  // first chunk of the first collective it did not complete
  char reason[kRankHeaderBytes - 2 * kLineBytes - 2 * sizeof(std::uint64_t)];  // ends with a zero
};
static_assert(sizeof(RankHeader) == kRankHeaderBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Where the other ranks find the memory, and the token that proves it is the right one.
struct Address {
  int pid = 0;
  int fd = 0;
  std::string token;  // 32 hexadecimal digits
};

// A mapping of the segment.  Threads: any; the types in it say which rank may write them.
class Segment {
 public:
  // Creates a zeroed segment of this layout, and keeps its descriptor open until
  // close_descriptor().
  static Result<std::unique_ptr<Segment>> create(const Layout& layout);

  // Maps the segment at `address`, which was created with the same layout.  Fails if that process
  // cannot be accessed from here, or if the descriptor is not the segment.
  static Result<std::unique_ptr<Segment>> open(const Address& address, const Layout& layout);

  Segment(const Segment&) = delete;
  ~Segment();

  const Layout& layout() const { return layout_; }

  // REQUIRES: made by create(), and close_descriptor() has not been called.
  Address address() const;

  // After this no process can open the segment; mappings stay.
  void close_descriptor();

  RankHeader& rank_header(int rank) const;
  Fingerprint& fingerprint(int rank, std::uint64_t chunk) const;  // of the chunk's collective
  std::byte* data(int rank, std::uint64_t chunk) const;

 private:
  explicit Segment(const Layout& layout) : layout_(layout) {}
  Result<void> map(int fd);

  Layout layout_;
  std::byte* memory_ = nullptr;
  int fd_ = -1;
};

}  // namespace ddprun::ddp::shm
