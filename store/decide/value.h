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

class SentValue;

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

  // Whether append() of so many bytes would have to copy the old ones.
  bool must_move_for(std::size_t more) const;
  // Whether both refer to the same bytes, and not only to equal ones.
  bool is_same_as(const Value& other) const { return block_ == other.block_; }
  // An empty value to which so many bytes can be appended without a copy.
  static Value with_room(std::size_t bytes);

  // Has the system provide memory for `bytes` from `offset` on of the room behind the value, as far
  // as there is any, so that append() need not.  There is none where other references exist.
  void touch_room(std::size_t offset, std::size_t bytes);

  // Makes this the old bytes followed by `piece`.  Other references keep the old value.  If
  // there are none, the bytes are extended in place, so n appends cost n pieces and not n^2.
  void append(std::string_view piece);

 private:
  friend SentValue;
  struct Block;

  static Block* make(std::size_t capacity);

  Block* block_ = nullptr;
};

// A reference that a reply has.  What only such references hold is counted, whoever let go of it
// last: the limit on what is stored does not concern it any more.
//
// Threads: as for Value.
class SentValue {
 public:
  SentValue() = default;
  SentValue(Value value);  // implicit: a reply is made of a value
  SentValue(const SentValue& other);
  SentValue(SentValue&& other) noexcept = default;
  SentValue& operator=(SentValue other) noexcept;
  ~SentValue();

  std::string_view view() const { return value_.view(); }
  std::string_view framed() const { return value_.framed(); }

  // The memory of the value if only replies hold it, shared out among them; otherwise 0.
  std::size_t unstored_bytes() const;

  // The memory of all values of this thread that only replies hold, each counted once.
  static std::size_t all_unstored_bytes();

 private:
  Value value_;
};

}  // namespace ddprun::store
