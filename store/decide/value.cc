// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/value.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace ddprun::store {

// The bytes follow the block in the same allocation, with their length just in front, so that both
// are copied or sent as one.
struct Value::Block {
  std::size_t references;
  std::size_t capacity;
  std::uint64_t size;

  char* bytes() { return reinterpret_cast<char*>(this + 1); }
};

Value::Block* Value::make(std::size_t capacity) {
  return new (::operator new(sizeof(Block) + capacity)) Block{1, capacity, 0};
}

Value::Value(std::string_view bytes) : block_(make(bytes.size())) {
  block_->size = bytes.size();
  if (!bytes.empty()) std::memcpy(block_->bytes(), bytes.data(), bytes.size());
}

Value::Value(const Value& other) : block_(other.block_) {
  if (block_ != nullptr) ++block_->references;
}

Value& Value::operator=(Value other) noexcept {
  std::swap(block_, other.block_);
  return *this;
}

Value::~Value() {
  if (block_ != nullptr && --block_->references == 0) ::operator delete(block_);
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

void Value::append(std::string_view piece) {
  std::string_view old = view();
  std::size_t size = old.size() + piece.size();
  if (block_ == nullptr || block_->references > 1 || block_->capacity < size) {
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

}  // namespace ddprun::store
