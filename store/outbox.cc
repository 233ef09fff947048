// SPDX-License-Identifier: BSD-3-Clause
#include "store/outbox.h"

#include <algorithm>

#include "store/base/check.h"

namespace ddprun::store {

void Outbox::add(const Reply& reply) {
  std::string& out = tail();
  std::size_t before = out.size();
  const auto* bytes = std::get_if<reply::Bytes>(&reply);
  if (bytes == nullptr || bytes->value.size() <= kCopiedBytes) {
    encode(reply, out);
    size_ += out.size() - before;
    return;
  }
  encode_length(bytes->value.size(), out);
  size_ += out.size() - before + bytes->value.size();
  pieces_.emplace_back(bytes->value);
}

void Outbox::add(std::string_view bytes) {
  tail().append(bytes);
  size_ += bytes.size();
}

std::size_t Outbox::front(std::span<std::string_view> views) const {
  std::size_t count = std::min(views.size(), pieces_.size());
  for (std::size_t i = 0; i < count; ++i) views[i] = view(pieces_[i]);
  if (count > 0) views[0].remove_prefix(sent_);
  return count;
}

void Outbox::consume(std::size_t count) {
  check(count <= size_, "more was sent than there was");
  size_ -= count;
  sent_ += count;
  while (!pieces_.empty() && sent_ >= view(pieces_.front()).size()) {
    sent_ -= view(pieces_.front()).size();
    pieces_.pop_front();
  }
}

std::string_view Outbox::view(const Piece& piece) {
  if (const auto* text = std::get_if<std::string>(&piece)) return *text;
  return std::get<Value>(piece).view();
}

std::string& Outbox::tail() {
  std::string* run = pieces_.empty() ? nullptr : std::get_if<std::string>(&pieces_.back());
  if (run == nullptr || run->size() >= kRunBytes) {
    run = &std::get<std::string>(pieces_.emplace_back(std::string()));
  }
  return *run;
}

}  // namespace ddprun::store
