// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace ddprun {
namespace {

struct Character {
  std::size_t size = 0;  // in bytes; 0 for what is no UTF-8
  std::uint32_t code = 0;
};

// The first character of `text`, which is not empty.
Character first_of(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  if (first < 0x80) return {1, first};
  std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return {};
  std::uint32_t code = first & (0xffU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if (!is_inside_character(text[i])) return {};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[size] || code > 0x10ffff || is_surrogate) return {};
  return {size, code};
}

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

// Control characters, ends of lines and paragraphs, and what turns the direction of writing.
constexpr std::array<Range, 6> kObeyed{Range{0, 0x1f},   {0x7f, 0x9f},     {0x61c, 0x61c},
                                       {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x206f}};

bool is_obeyed(std::uint32_t code) {
  return std::ranges::any_of(
      kObeyed, [code](const Range& range) { return code >= range.first && code <= range.last; });
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = first_of(text).size;
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  while (!lines.empty() && lines.back().find_first_not_of(" \t\r") == std::string::npos)
    lines.pop_back();
  return lines;
}

std::string printable(std::string_view text, bool keeps_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    Character character = first_of(text);
    std::size_t size = std::max<std::size_t>(character.size, 1);
    bool is_kept = keeps_lines && (text[0] == '\n' || text[0] == '\t');
    if (is_kept || (character.size > 0 && !is_obeyed(character.code))) {
      out += text.substr(0, size);
    } else {
      for (char byte : text.substr(0, size)) {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(byte));
        out += escape;
      }
    }
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace ddprun
