// SPDX-License-Identifier: BSD-3-Clause
//
// What one connection has still to be sent.  Small replies are written one behind the other into
// one run of bytes; a large value is kept as a reference and goes out from where it is stored.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/decide/value.h"
#include "store/decide/wire.h"

namespace ddprun::store {

class Outbox {
 public:
  // A run of copied bytes that has grown to this is not grown any more but followed by another,
  // so that a reply of many small values is not moved about again and again.
  static constexpr std::size_t kRunBytes = 64 * 1024;

  void add(Reply reply);
  void add(std::string_view bytes);
  // The bytes of the value without their length, which are not copied.
  void add_body(SentValue value);

  bool empty() const { return size_ == 0; }
  // The bytes to be sent, whether held here or only referred to.
  std::size_t size() const { return size_; }

  // About what is held here, without the values referred to; a run counts until all of it is sent.
  std::size_t held_bytes() const { return held_bytes_ + piece_count() * sizeof(Piece); }

  // Of the values referred to, what no store holds any more (SentValue::unstored_bytes()).  Looks
  // at every piece.
  std::size_t unstored_bytes() const;

  // How many pieces there are to send.
  std::size_t piece_count() const { return pieces_.size() - first_; }

  // The first piece, of which there must be one.  Valid until the next call of add() or consume().
  std::string_view front() const { return view(pieces_[first_]).substr(sent_); }

  // Fills `views` with the first pieces, in the order of sending, and answers how many those are.
  // They are valid until the next call of add() or consume().
  std::size_t front(std::span<std::string_view> views) const;

  // The first `count` bytes have been sent.
  void consume(std::size_t count);

 private:
  struct Body {
    SentValue value;
  };
  using Piece = std::variant<std::string, SentValue, Body>;

  void drop_sent();
  void add_value(SentValue value);
  void add_run(std::string run);
  static std::string_view view(const Piece& piece);
  std::string& tail();

  // Not a deque: an empty one of libstdc++ costs 600 bytes, and most connections are idle.
  std::vector<Piece> pieces_;
  std::size_t first_ = 0;  // the pieces before it have been sent
  std::size_t sent_ = 0;   // of the first piece
  std::size_t size_ = 0;
  std::size_t held_bytes_ = 0;
};

}  // namespace ddprun::store
