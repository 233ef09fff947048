// SPDX-License-Identifier: BSD-3-Clause
//
// The memory that the ranks of a node share: an anonymous file that one of them makes and the
// others open through its process.  It has no name, so nothing of it is left behind however the
// ranks end; it goes when the last mapping does.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "store/base/error.h"
#include "worker/shm/decide/fingerprint.h"
#include "worker/shm/decide/layout.h"

namespace ddprun::ddp::shm {

// Running, Left (it closed the group), Failed (`reason` says why, `given_up` since when; both are
// written before).
enum class Life : std::uint32_t { Running, Left, Failed };

// What one rank says to the others.  Written by that rank only, but for the bell, which anyone
// rings to wake it.
struct RankWords {
  std::atomic<std::uint64_t> counters[3];  // by Counter; see plan.h
  alignas(kLineBytes) std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> is_asleep;
  alignas(kLineBytes) std::atomic<Life> life;
  std::atomic<std::uint64_t> given_up;  // the first chunk of the first collective it did not end
  char reason[kWordsBytes - 2 * kLineBytes - 2 * sizeof(std::uint64_t)];  // ends with a zero
};
static_assert(sizeof(RankWords) == kWordsBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Where the others find the memory, and by what they know that it is the right one.
struct Address {
  int pid = 0;
  int fd = 0;
  std::string token;  // 32 hexadecimal digits
};

// A mapping of the segment.  Threads: any; what lies in it says who may write what.
class Segment {
 public:
  // Makes one of this layout, all zero, and keeps its descriptor open until close_door().
  static Result<std::unique_ptr<Segment>> create(const Layout& layout);

  // Maps the one at `address`, made with the same layout.  Fails where that process is not to be
  // seen from here, or what it has open is not the segment.
  static Result<std::unique_ptr<Segment>> open(const Address& address, const Layout& layout);

  Segment(const Segment&) = delete;
  ~Segment();

  const Layout& layout() const { return layout_; }

  // Of one that this process made.
  Address address() const;

  // Nobody can open it any more; mappings stay.
  void close_door();

  RankWords& words(int rank) const;
  Call& call(int rank, std::uint64_t chunk) const;  // what the slot's chunk belongs to
  std::byte* data(int rank, std::uint64_t chunk) const;

 private:
  explicit Segment(const Layout& layout) : layout_(layout) {}
  Result<void> map(int fd);

  Layout layout_;
  std::byte* memory_ = nullptr;
  int fd_ = -1;
};

}  // namespace ddprun::ddp::shm
