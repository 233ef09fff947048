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

std::vector<std::string_view> Outbox::front(std::size_t max_count) const {
  std::vector<std::string_view> views;
  views.reserve(std::min(max_count, pieces_.size()));
  for (const Piece& piece : pieces_) {
    if (views.size() == max_count) break;
    views.push_back(view(piece).substr(views.empty() ? sent_ : 0));
  }
  return views;
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
  if (pieces_.empty() || !std::holds_alternative<std::string>(pieces_.back())) {
    pieces_.emplace_back(std::string());
  }
  return std::get<std::string>(pieces_.back());
}

}  // namespace ddprun::store
