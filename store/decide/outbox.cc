// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/outbox.h"

#include <algorithm>
#include <utility>

#include "store/base/check.h"

namespace ddprun::store {

void Outbox::add(Reply reply) {
  if (auto* bytes = std::get_if<reply::Bytes>(&reply)) return add_value(std::move(bytes->value));
  if (auto* run = std::get_if<reply::Run>(&reply)) return add_run(std::move(run->bytes));
  std::string& out = tail();
  std::size_t before = out.size();
  encode(reply, out);
  size_ += out.size() - before;
  held_bytes_ += out.size() - before;
}

void Outbox::add_value(SentValue value) {
  std::string_view framed = value.framed();
  if (framed.size() <= kCopiedBytes) return add(framed);
  size_ += framed.size();
  pieces_.emplace_back(std::move(value));
}

void Outbox::add_body(SentValue value) {
  if (value.view().empty()) return;
  size_ += value.view().size();
  pieces_.emplace_back(Body{std::move(value)});
}

void Outbox::add_run(std::string run) {
  if (run.size() <= kCopiedBytes) return add(std::string_view(run));
  size_ += run.size();
  held_bytes_ += run.size();
  pieces_.emplace_back(std::move(run));
}

void Outbox::add(std::string_view bytes) {
  tail().append(bytes);
  size_ += bytes.size();
  held_bytes_ += bytes.size();
}

std::size_t Outbox::unstored_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t i = first_; i < pieces_.size(); ++i) {
    if (const auto* value = std::get_if<SentValue>(&pieces_[i])) bytes += value->unstored_bytes();
    if (const auto* body = std::get_if<Body>(&pieces_[i])) bytes += body->value.unstored_bytes();
  }
  return bytes;
}

std::size_t Outbox::front(std::span<std::string_view> views) const {
  std::size_t count = std::min(views.size(), pieces_.size() - first_);
  for (std::size_t i = 0; i < count; ++i) views[i] = view(pieces_[first_ + i]);
  if (count > 0) views[0].remove_prefix(sent_);
  return count;
}

void Outbox::consume(std::size_t count) {
  check(count <= size_, "more was sent than there was");
  size_ -= count;
  sent_ += count;
  while (first_ < pieces_.size() && sent_ >= view(pieces_[first_]).size()) {
    std::size_t size = view(pieces_[first_]).size();
    sent_ -= size;
    if (std::holds_alternative<std::string>(pieces_[first_])) held_bytes_ -= size;
    pieces_[first_++] = Piece();  // a large value may be freed now
  }
  drop_sent();
}

// Forgets the places of what has been sent, so seldom that it costs next to nothing.
void Outbox::drop_sent() {
  constexpr std::size_t kKeptPieces = 8;
  if (first_ == pieces_.size()) {
    pieces_.clear();
    if (pieces_.capacity() > kKeptPieces) pieces_.shrink_to_fit();
  } else if (first_ > kKeptPieces && first_ > pieces_.size() / 2) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
  } else {
    return;
  }
  first_ = 0;
}

std::string_view Outbox::view(const Piece& piece) {
  if (const auto* text = std::get_if<std::string>(&piece)) return *text;
  if (const auto* body = std::get_if<Body>(&piece)) return body->value.view();
  return std::get<SentValue>(piece).framed();
}

std::string& Outbox::tail() {
  std::string* run = pieces_.empty() ? nullptr : std::get_if<std::string>(&pieces_.back());
  if (run == nullptr || run->size() >= kRunBytes) {
    run = &std::get<std::string>(pieces_.emplace_back(std::string()));
  } else if (run->size() >= kRunBytes / 16 && run->capacity() < kRunBytes) {
    run->reserve(kRunBytes + kCopiedBytes);  // it will be a long one; do not move it at each step
  }
  return *run;
}

}  // namespace ddprun::store
