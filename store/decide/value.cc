// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/value.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "store/decide/unfreed_memory.h"

namespace ddprun::store {
namespace {

// Signed, because a server may end in another thread than it worked in.
thread_local std::ptrdiff_t all_unstored = 0;

}  // namespace

// The bytes follow the block in the same allocation, with their length just in front, so that both
// are copied or sent as one.
struct Value::Block {
  // Not larger: there is one for each key.
  using Count = std::uint32_t;
  static constexpr Count kMostReferences = std::numeric_limits<Count>::max();

  Count references;
  Count replies;  // of these references, those that replies have
  std::size_t capacity;
  std::uint64_t size;

  char* bytes() { return reinterpret_cast<char*>(this + 1); }
  std::size_t memory() const { return sizeof(Block) + capacity; }
};

Value::Block* Value::make(std::size_t capacity) {
  return new (::operator new(sizeof(Block) + capacity)) Block{1, 0, capacity, 0};
}

Value::Value(std::string_view bytes) : block_(make(bytes.size())) {
  block_->size = bytes.size();
  if (!bytes.empty()) std::memcpy(block_->bytes(), bytes.data(), bytes.size());
}

Value::Value(const Value& other) : block_(other.block_) {
  if (block_ == nullptr) return;
  if (block_->references == Block::kMostReferences) {
    block_ = nullptr;
    *this = Value(other.view());
  } else {
    ++block_->references;
  }
}

Value& Value::operator=(Value other) noexcept {
  std::swap(block_, other.block_);
  return *this;
}

Value::~Value() {
  if (block_ == nullptr || --block_->references != block_->replies) return;
  if (block_->references == 0) {
    UnfreedMemory::free(block_, block_->memory());
  } else {
    all_unstored += static_cast<std::ptrdiff_t>(block_->memory());
  }
}

std::string_view Value::view() const {
  if (block_ == nullptr) return {};
  return {block_->bytes(), block_->size};
}

std::string_view Value::framed() const {
  static_assert(std::endian::native == std::endian::little, "the wire is little-endian");
  static_assert(offsetof(Block, size) + sizeof(std::uint64_t) == sizeof(Block));
  constexpr std::string_view kNothing("\0\0\0\0\0\0\0\0", sizeof(std::uint64_t));
  if (block_ == nullptr) return kNothing;
  return {reinterpret_cast<const char*>(&block_->size), sizeof(block_->size) + block_->size};
}

void Value::assign(std::string_view bytes) {
  constexpr std::size_t kSmall = 64;
  bool fits = block_ != nullptr && block_->references == 1 && bytes.size() <= block_->capacity &&
              block_->capacity <= std::max(kSmall, 2 * bytes.size());
  if (!fits) {
    *this = Value(bytes);
    return;
  }
  if (!bytes.empty()) std::memmove(block_->bytes(), bytes.data(), bytes.size());
  block_->size = bytes.size();
}

bool Value::must_move_for(std::size_t more) const {
  return block_ == nullptr || block_->references > 1 || block_->capacity < block_->size + more;
}

Value Value::with_room(std::size_t bytes) {
  Value value;
  value.block_ = make(bytes);
  return value;
}

void Value::touch_room(std::size_t offset, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;  // or a part of one
  if (block_ == nullptr || block_->references > 1) return;
  std::size_t room = block_->capacity - block_->size;
  std::size_t end = std::min(room, offset + bytes);
  for (std::size_t i = offset; i < end; i += kPage) block_->bytes()[block_->size + i] = 0;
}

void Value::append(std::string_view piece) {
  std::string_view old = view();
  std::size_t size = old.size() + piece.size();
  if (must_move_for(piece.size())) {
    Value grown;
    grown.block_ = make(std::max(size, old.size() + old.size() / 2));
    if (!old.empty()) std::memcpy(grown.block_->bytes(), old.data(), old.size());
    grown.block_->size = old.size();
    std::swap(block_, grown.block_);
    // `grown` now holds the old bytes; `piece` may point into them, so they go last.
    if (!piece.empty()) std::memcpy(block_->bytes() + block_->size, piece.data(), piece.size());
    block_->size = size;
    return;
  }
  if (!piece.empty()) std::memcpy(block_->bytes() + block_->size, piece.data(), piece.size());
  block_->size = size;
}

SentValue::SentValue(Value value) : value_(std::move(value)) {
  Value::Block* block = value_.block_;
  if (block != nullptr && ++block->replies == block->references)
    all_unstored += static_cast<std::ptrdiff_t>(block->memory());
}

// The value is counted already if it must be, unless it was copied.
SentValue::SentValue(const SentValue& other) : value_(other.value_) {
  Value::Block* block = value_.block_;
  if (block != nullptr && ++block->replies == 1)
    all_unstored += static_cast<std::ptrdiff_t>(block->memory());
}

SentValue& SentValue::operator=(SentValue other) noexcept {
  std::swap(value_.block_, other.value_.block_);
  return *this;
}

SentValue::~SentValue() {
  Value::Block* block = std::exchange(value_.block_, nullptr);
  if (block == nullptr) return;
  --block->replies;
  if (--block->references > 0) return;
  all_unstored -= static_cast<std::ptrdiff_t>(block->memory());
  UnfreedMemory::free(block, block->memory());
}

std::size_t SentValue::unstored_bytes() const {
  const Value::Block* block = value_.block_;
  bool is_unstored = block != nullptr && block->references == block->replies;
  return is_unstored ? block->memory() / block->replies : 0;
}

std::size_t SentValue::all_unstored_bytes() {
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(all_unstored, 0));
}

}  // namespace ddprun::store
