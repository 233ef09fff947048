// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/unfreed_memory.h"

#include <cstdint>
#include <new>

namespace ddprun::store {
namespace {

thread_local UnfreedMemory* collector = nullptr;

// Pieces begin where a huge page does, so that none has to be split.
constexpr std::uintptr_t kAlignment = std::uintptr_t{2} << 20;

}  // namespace

// Lies at the beginning of the memory that it is about.
struct UnfreedMemory::Block {
  Block* before;
  std::size_t bytes;  // that are left; pieces are taken off the end
};

UnfreedMemory::~UnfreedMemory() {
  if (collector == this) collector = nullptr;
  while (Block* block = last_) {
    last_ = block->before;
    ::operator delete(block);
  }
}

std::span<char> UnfreedMemory::free_some() {
  static_assert(kPieceBytes >= 2 * kAlignment);
  Block* block = last_;
  if (block == nullptr) return {};
  if (block->bytes <= kPieceBytes) {
    last_ = block->before;
    bytes_ -= block->bytes;
    ::operator delete(block);
    return {};
  }
  char* begin = reinterpret_cast<char*>(block);
  std::size_t left = block->bytes - kPieceBytes;
  std::uintptr_t over = (reinterpret_cast<std::uintptr_t>(begin) + left) % kAlignment;
  if (over != 0) left += kAlignment - over;
  if (left < sizeof(Block)) left += kAlignment;
  std::span<char> piece(begin + left, block->bytes - left);
  block->bytes = left;
  bytes_ -= piece.size();
  return piece;
}

UnfreedMemory::Scope::Scope(UnfreedMemory& here) : outer_(collector) {
  collector = &here;
}

UnfreedMemory::Scope::~Scope() {
  collector = outer_;
}

void UnfreedMemory::free(void* memory, std::size_t bytes) noexcept {
  if (bytes < kLeastBytes || collector == nullptr) return ::operator delete(memory);
  collector->last_ = new (memory) Block{.before = collector->last_, .bytes = bytes};
  collector->bytes_ += bytes;
}

}  // namespace ddprun::store
