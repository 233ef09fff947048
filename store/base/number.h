// SPDX-License-Identifier: BSD-3-Clause
//
// Whole numbers as others wrote them, in base 10 without blanks or a plus; nullopt for what does
// not fit Number, too.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace ddprun {

// The number that is the whole of `text`.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

// The number that `text` begins with, whatever follows: a unit, a newline.
template <class Number>
std::optional<Number> leading_number(std::string_view text) {
  Number value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) {
    return std::nullopt;
  }
  return value;
}

}  // namespace ddprun
