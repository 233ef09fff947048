// SPDX-License-Identifier: BSD-3-Clause
//
// The memory of large values that nothing refers to any more.  The system takes 90 ms to take back
// 512 MB, so a server collects it and frees it piece by piece, and serves others in between.
#pragma once

#include <cstddef>
#include <span>

namespace ddprun::store {

// Threads: not safe for concurrent use.  What has not been freed is freed by the destructor.
class UnfreedMemory {
 public:
  // What is smaller is freed at once.
  static constexpr std::size_t kLeastBytes = std::size_t{16} << 20;
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

  UnfreedMemory() = default;
  UnfreedMemory(const UnfreedMemory&) = delete;
  UnfreedMemory& operator=(const UnfreedMemory&) = delete;
  ~UnfreedMemory();

  std::size_t bytes() const { return bytes_; }

  // Takes off one piece of at most kPieceBytes.  Returns it if the caller should give its pages
  // back to the system: its address stays allocated until the last piece, so it must not be used
  // nor unmapped.  Returns an empty span if there was nothing to take off or it has been freed.
  std::span<char> free_some();

  // As long as it lives, free() in this thread collects memory in `here`.  Of two the inner one
  // counts.
  class Scope {
   public:
    explicit Scope(UnfreedMemory& here);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    UnfreedMemory* outer_;
  };

  // Frees memory that operator new has given, or collects it if it is large and there is a Scope.
  static void free(void* memory, std::size_t bytes) noexcept;

 private:
  struct Block;

  Block* last_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ddprun::store
