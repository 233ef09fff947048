// SPDX-License-Identifier: BSD-3-Clause
//
// Cuts texts to size without cutting a UTF-8 character in two, and quotes what strangers have sent.
// A text that is no UTF-8 is cut near the place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// Whether `byte` goes on with a character that an earlier byte has begun.
inline bool is_inside_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// The longest beginning of `text` that has at most `bytes` bytes and ends with a whole character.
inline std::string_view beginning_of(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && is_inside_character(text[bytes])) --bytes;
  return text.substr(0, bytes);
}

// The longest end of `text` that has at most `bytes` bytes and begins with a whole character.
inline std::string_view end_of(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  text.remove_prefix(text.size() - bytes);
  while (!text.empty() && is_inside_character(text.front())) text.remove_prefix(1);
  return text;
}

// `text`, or its beginning followed by "...".
inline std::string cut(std::string_view text, std::size_t bytes) {
  return std::string(beginning_of(text, bytes)) + (text.size() > bytes ? "..." : "");
}

// What a terminal shows at last of a line that was written over, as progress bars are: what follows
// its last carriage return.  One at its end is an end of the line.
inline std::string_view last_state_of(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  std::size_t last = line.rfind('\r');
  return last == std::string_view::npos ? line : line.substr(last + 1);
}

bool is_utf8(std::string_view text);

// The lines of `text`, without blank ones at its end.
std::vector<std::string> lines_of(std::string_view text);

// `text` as a line that a terminal only shows: what it would obey, what ends a line or turns its
// direction, and what is no UTF-8, is written as "\x1b".  With `keeps_lines`, ends of lines and
// tabs stay.
std::string printable(std::string_view text, bool keeps_lines = false);

}  // namespace ddprun
