// SPDX-License-Identifier: BSD-3-Clause
//
// What a key holds: bytes that are written once and shared from then on, so that a value asked for
// by ten thousand clients exists once, and outlives its key for as long as a reply still needs it.
#pragma once

#include <cstddef>
#include <string_view>

namespace ddprun::store {

// Values up to this size, with their length, are copied into a reply; larger ones are referred to,
// because a piece of its own costs more than to copy a little.
inline constexpr std::size_t kCopiedBytes = 1024;

// A counted reference to immutable bytes, or to nothing.
//
// Threads: the count is not atomic; all references to one value belong to one thread.
class Value {
 public:
  Value() = default;
  explicit Value(std::string_view bytes);
  Value(const Value& other);
  Value(Value&& other) noexcept : block_(other.block_) { other.block_ = nullptr; }
  Value& operator=(Value other) noexcept;
  ~Value();

  // Whether there is a value; an empty value is one.
  explicit operator bool() const { return block_ != nullptr; }

  // The bytes; none where there is no value.  Valid as long as any reference is.
  std::string_view view() const;

  std::size_t size() const { return view().size(); }

  // The bytes as they go over the wire, with their length in front; a length of 0 where there is no
  // value.  Valid as long as any reference is.
  std::string_view framed() const;

  // Makes this `bytes`.  Other references keep the old value.  If there are none, and the bytes fit
  // without much unused room, they overwrite the old ones, which saves an allocation.
  void assign(std::string_view bytes);

  // Makes this the old bytes followed by `piece`.  Other references keep the old value.  If
  // there are none, the bytes are extended in place, so n appends cost n pieces and not n^2.
  void append(std::string_view piece);

 private:
  struct Block;

  static Block* make(std::size_t capacity);

  Block* block_ = nullptr;
};

}  // namespace ddprun::store
