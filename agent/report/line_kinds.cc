// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/line_kinds.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string>

namespace ddprun::agent {
namespace {

constexpr std::string_view kFrame = "frame #";
constexpr std::array<std::string_view, 7> kDump = {
    kFrame,      "Fatal Python error: ", "Thread 0x",          "Current thread 0x",
    "  File \"", "Extension modules:",   "  <no Python frame>"};

bool is_logged_at(std::string_view line, const std::string& level) {
  auto contains = [&](const std::string& words) { return line.find(words) != std::string::npos; };
  bool has_head =
      !line.empty() && (line[0] == '[' || std::isdigit(static_cast<unsigned char>(line[0])) != 0);
  return line.starts_with(level + ":") || line.starts_with("[" + level) ||
         contains(" - " + level + " - ") || (has_head && contains(" " + level + " "));
}

bool is_bar_of_tqdm(std::string_view line) {
  std::size_t bar = line.find("%|");
  return bar != std::string_view::npos && line.find("| ", bar + 2) != std::string_view::npos &&
         line.find('[', bar) != std::string_view::npos;
}

}  // namespace

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

bool is_remark(std::string_view line) {
  bool is_of_torch = line.size() > 2 && (line.starts_with("[W") || line.starts_with("[I")) &&
                     std::isdigit(static_cast<unsigned char>(line[2])) != 0;
  return is_of_torch || is_logged_at(line, "WARNING");
}

bool is_chatter(std::string_view line) {
  return is_logged_at(line, "INFO") || is_logged_at(line, "DEBUG");
}

bool is_warning(std::string_view line) {
  std::size_t place = line.find(".py:");
  if (place == std::string_view::npos) return false;
  std::string_view rest = line.substr(place + std::string_view(".py:").size());
  std::size_t after_number = rest.find_first_not_of("0123456789");
  if (after_number == 0 || after_number == std::string_view::npos) return false;
  rest.remove_prefix(after_number);
  return rest.starts_with(": ") && rest.find("Warning: ") != std::string_view::npos;
}

bool is_progress(std::string_view line) {
  if (is_bar_of_tqdm(line)) return true;
  bool has_row = std::ranges::any_of(
      std::array{"========", "########", "--------", "━━━━━━━━", "████████"},
      [&](std::string_view row) { return line.find(row) != std::string_view::npos; });
  if (!has_row) return false;
  auto is_digit_at = [&](std::size_t at) {
    return at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0;
  };
  for (std::size_t at = 1; at < line.size(); ++at) {
    if (!is_digit_at(at - 1)) continue;
    if (line[at] == '%' || (line[at] == '/' && is_digit_at(at + 1))) return true;
  }
  return false;
}

bool is_frame_of_torch(std::string_view line) {
  return line.starts_with(kFrame);
}

bool is_dump(std::string_view line) {
  return std::ranges::any_of(kDump,
                             [&](std::string_view begin) { return line.starts_with(begin); });
}

}  // namespace ddprun::agent
