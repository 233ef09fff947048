// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/wire.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <tuple>
#include <utility>

#include "store/base/check.h"
#include "store/base/variant.h"
#include "store/decide/operation_table.h"

namespace ddprun::store {
namespace {

// torch copies its integers from memory, so the wire has the order of every host that runs it.
static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

// Of the room that decoders give back the largest is kept, for whichever of this thread's needs it
// next: to get it anew costs more than to copy a request in.
constexpr std::size_t kMostSpareBytes = std::size_t{16} << 20;
thread_local std::string spare_room;

void give_back_room(std::string& held) {
  held.clear();
  if (held.capacity() <= Decoder::kKeptBytes) return;
  bool is_wanted = held.capacity() <= kMostSpareBytes && held.capacity() > spare_room.capacity();
  if (is_wanted) std::swap(held, spare_room);
  std::string().swap(held);
}

// For `more` bytes, which are to be appended.
void take_room(std::string& held, std::size_t more) {
  bool is_short = held.size() + more > std::max(held.capacity(), Decoder::kKeptBytes);
  if (!is_short || spare_room.capacity() <= held.capacity()) return;
  spare_room.assign(held);
  std::swap(held, spare_room);
  std::string().swap(spare_room);
}

template <std::integral T>
T load(const char* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

template <std::integral T>
void put(T number, std::string& out) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof bytes);
}

void put(Op op, std::string& out) {
  out.push_back(static_cast<char>(op));
}

void put(std::string_view text, std::string& out) {
  put(std::uint64_t{text.size()}, out);
  out.append(text);
}

void put(std::span<const std::string_view> keys, std::string& out) {
  put(std::uint64_t{keys.size()}, out);
  for (std::string_view key : keys) put(key, out);
}

void put(std::span<const KeyValue> pairs, std::string& out) {
  put(std::uint64_t{pairs.size()}, out);
  for (const KeyValue& pair : pairs) put(pair.key, out), put(pair.value, out);
}

}  // namespace

Op op_of(const Request& request) {
  return kOpOfAlternative[request.index()];
}

std::string_view name_of(Op op) {
  std::uint8_t row = kRowOfNumber[static_cast<std::uint8_t>(op)];
  return row != kNoRow ? kOperations[row].name : std::string_view();
}

void encode(const Request& request, std::string& out) {
  put(op_of(request), out);
  std::visit(
      [&out]<class R>(const R& r) {
        std::apply([&](auto... fields) { (put(r.*fields.member, out), ...); },
                   std::get<row_index<R>()>(kTable).fields);
      },
      request);
}

void encode(const Reply& reply, std::string& out) {
  std::visit(Overloaded{
                 [&](const reply::Byte& r) { put(r.value, out); },
                 [&](const reply::Nonce& r) { put(r.value, out); },
                 [&](const reply::Number& r) { put(r.value, out); },
                 [&](const reply::Bytes& r) { out.append(r.value.framed()); },
                 [&](const reply::Run& r) { out.append(r.bytes); },
             },
             reply);
}

void encode_length(std::size_t length, std::string& out) {
  put(std::uint64_t{length}, out);
}

void Decoder::feed(std::string_view bytes) {
  check(begin_ == window_.size() || window_.data() == held_.data(),
        "bytes fed before were not kept");
  if (held_.empty()) {
    window_ = bytes;
    begin_ = cursor_ = 0;
  } else {
    take_room(held_, bytes.size());
    held_.append(bytes);
    window_ = held_;
  }
}

// These two are inlined: a request may have a quarter of a million strings.
inline Decoder::Step Decoder::read_string(std::size_t limit, const char* what) {
  std::size_t available = window_.size() - cursor_;
  if (available < kLengthBytes) return Step::NeedMore;
  auto length = load<std::uint64_t>(window_.data() + cursor_);
  std::size_t offset = cursor_ - begin_ + kLengthBytes;
  if (length > limit || offset + length > limits_->max_request_bytes) {
    return too_long(length, limit, what);
  }
  if (available - kLengthBytes < length) return Step::NeedMore;
  strings_.push_back({offset, length});
  cursor_ += kLengthBytes + length;
  return Step::Done;
}

inline Decoder::Step Decoder::read_field(char kind) {
  if (kind == 'k') return read_string(limits_->max_key_bytes, "key");
  if (kind == 'v') return read_string(limits_->max_value_bytes, "value");
  std::string_view rest = window_.substr(cursor_);
  std::size_t size = kind == 'u' ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
  if (rest.size() < size) return Step::NeedMore;
  number_ = kind == 'u' ? load<std::uint32_t>(rest.data()) : load<std::uint64_t>(rest.data());
  cursor_ += size;
  return Step::Done;
}

Decoder::Next Decoder::next() {
  Step step = Step::Done;
  if (!has_head_) step = read_head();
  while (step == Step::Done && fields_left_ > 0) {
    step = read_field(kinds_[next_kind_]);
    if (step != Step::Done) break;
    --fields_left_;
    if (++next_kind_ == kinds_.size()) next_kind_ = 0;
  }
  switch (step) {
    case Step::Done:
      break;
    case Step::NeedMore:
      keep();
      return NeedMore{};
    case Step::Malformed:
      return Malformed{std::move(reason_)};
  }
  if (op_ == Op::Validate) {
    if (static_cast<std::uint32_t>(number_) != kMagic) {
      return Malformed{"the handshake has the wrong magic number"};
    }
    is_validated_ = true;
  }
  return finish_request();
}

template <class T>
void Decoder::release_if_large(std::vector<T>& storage) {
  if (storage.capacity() > kKeptElements) storage = std::vector<T>();  // "= {}" would keep it
}

void Decoder::keep() {
  release_if_large(keys_);
  release_if_large(pairs_);
  if (begin_ == window_.size()) {
    give_back_room(held_);
  } else if (held_.empty()) {
    take_room(held_, window_.size() - begin_);
    held_.assign(window_.substr(begin_));
  } else {
    held_.erase(0, begin_);
  }
  cursor_ -= begin_;
  begin_ = 0;
  window_ = held_;
}

std::string Decoder::take_rest() {
  std::string rest(window_.substr(cursor_));
  held_.clear();
  window_ = held_;
  begin_ = cursor_ = last_ = 0;
  return rest;
}

Request Decoder::hold() {
  if (window_.data() != held_.data()) {
    const char* old = window_.data() + last_;
    held_.assign(window_.substr(last_));
    auto move = [&](std::string_view& view) {
      view = {held_.data() + (view.data() - old), view.size()};
    };
    for (std::string_view& key : keys_) move(key);
    for (KeyValue& pair : pairs_) move(pair.key), move(pair.value);
    window_ = held_;
    begin_ = cursor_ -= last_;
    last_ = 0;
  }
  return make_request();
}

// The operation and, where it has one, its count.
Decoder::Step Decoder::read_head() {
  std::string_view rest = window_.substr(cursor_);
  if (rest.empty()) return Step::NeedMore;
  auto number = static_cast<std::uint8_t>(rest[0]);
  if (!is_validated_ && number != 0) return malformed("the first byte is not a handshake's");
  bool is_known_here = number != 0 && is_known(number, limits_->has_extensions);
  if (is_validated_ && !is_known_here) {
    return malformed("unknown operation " + std::to_string(number));
  }
  op_ = static_cast<Op>(number);
  const Shape& shape = operation_of(op_).shape;
  std::size_t repeats = 1;
  if (shape.is_counted) {
    if (rest.size() < 1 + kLengthBytes) return Step::NeedMore;
    auto count = load<std::uint64_t>(rest.data() + 1);
    if (count > limits_->max_keys_per_request) {
      return malformed("a request of " + std::to_string(count) + " keys; the limit is " +
                       std::to_string(limits_->max_keys_per_request));
    }
    repeats = count;
  }
  cursor_ += shape.is_counted ? 1 + kLengthBytes : 1;
  kinds_ = {shape.kinds.data(), shape.kind_count};
  fields_left_ = repeats * kinds_.size();
  next_kind_ = 0;
  has_head_ = true;
  strings_.clear();
  // Not for all that are announced, but for those that may have come.
  strings_.reserve(std::min(fields_left_, rest.size() / kLengthBytes));
  return Step::Done;
}

Decoder::Step Decoder::too_long(std::size_t length, std::size_t limit, const char* what) {
  if (length > limit) {
    return malformed(std::string("a ") + what + " of " + std::to_string(length) +
                     " bytes; the limit is " + std::to_string(limit));
  }
  return malformed("a request of more than " + std::to_string(limits_->max_request_bytes) +
                   " bytes");
}

Decoder::Step Decoder::malformed(std::string reason) {
  reason_ = std::move(reason);
  return Step::Malformed;
}

// The fields of one decoded request, read in the order of its row.
struct Decoder::Parts {
  const char* start;
  const Range* next_string;
  std::uint64_t number;
  std::span<const std::string_view> keys;
  std::span<const KeyValue> pairs;

  void read(std::string_view& field) {
    field = {start + next_string->offset, next_string->length};
    ++next_string;
  }
  void read(std::int64_t& field) const { field = static_cast<std::int64_t>(number); }
  void read(std::uint32_t& field) const { field = static_cast<std::uint32_t>(number); }
  void read(std::span<const std::string_view>& field) const { field = keys; }
  void read(std::span<const KeyValue>& field) const { field = pairs; }

  template <std::size_t I>
  static Request make(Parts parts) {
    RequestOf<I> request;
    std::apply([&](auto... fields) { (parts.read(request.*fields.member), ...); },
               std::get<I>(kTable).fields);
    return request;
  }
};

// Makes the request that begins at last_.
Request Decoder::make_request() const {
  using Make = Request (*)(Parts);
  static constexpr auto kMakers = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Make, kRows>{&Parts::make<I>...};
  }
  (std::make_index_sequence<kRows>());
  Make make = kMakers[kRowOfNumber[static_cast<std::uint8_t>(op_)]];
  return make({window_.data() + last_, strings_.data(), number_, keys_, pairs_});
}

// Makes the request whose last byte is before the cursor, and moves on to the one behind it.
Request Decoder::finish_request() {
  const char* start = window_.data() + begin_;
  auto at = [start](Range range) { return std::string_view(start + range.offset, range.length); };
  if (op_ == Op::MultiSet) {
    pairs_.resize(strings_.size() / 2);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      pairs_[i] = {at(strings_[2 * i]), at(strings_[2 * i + 1])};
    }
  } else if (operation_of(op_).shape.is_counted) {
    keys_.resize(strings_.size());
    std::transform(strings_.begin(), strings_.end(), keys_.begin(), at);
  }
  last_ = begin_;
  begin_ = cursor_;
  has_head_ = false;
  Request made = make_request();
  release_if_large(strings_);
  return made;
}

}  // namespace ddprun::store
