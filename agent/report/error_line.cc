// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/error_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <string_view>

#include "store/base/text.h"

namespace ddprun::agent {
namespace {

constexpr std::string_view kWhat = "what():";

// Of torch's C++ backtraces.
constexpr std::string_view kFrame = "frame #";
// And of faulthandler's dump; "Fatal Python error: Aborted" only says the signal once more.
constexpr std::array<std::string_view, 7> kDump = {
    kFrame,      "Fatal Python error: ", "Thread 0x",          "Current thread 0x",
    "  File \"", "Extension modules:",   "  <no Python frame>"};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Without the "[rank1]: " that torch puts before each line of an exception.
std::string_view without_rank(std::string_view line) {
  constexpr std::string_view kBegin = "[rank";
  constexpr std::string_view kEnd = "]: ";
  if (!line.starts_with(kBegin)) return line;
  std::size_t end = line.find_first_not_of("0123456789", kBegin.size());
  if (end == kBegin.size() || end == std::string_view::npos) return line;
  return line.substr(end).starts_with(kEnd) ? line.substr(end + kEnd.size()) : line;
}

bool is_python_exception(std::string_view line) {
  std::string_view name = line.substr(0, line.find(": "));
  bool is_name = std::ranges::all_of(
      name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
  return is_name && (name.ends_with("Error") || name.ends_with("Exception") ||
                     name.ends_with("Interrupt") || name.ends_with("Exit"));
}

// The exception that the line names, if it names one.
std::optional<std::string_view> exception_in(std::string_view line) {
  line = without_rank(line);
  if (is_python_exception(line)) return line;
  std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  if (!line.substr(begin).starts_with(kWhat)) return std::nullopt;
  line.remove_prefix(begin + kWhat.size());
  if (is_blank(line)) return std::nullopt;
  return line.substr(line.find_first_not_of(' '));
}

// "[W1122 03:58:17.1 file.cpp:12] ...": torch's logs, at a level below an error.
bool is_remark(std::string_view line) {
  return line.size() > 2 && (line.starts_with("[W") || line.starts_with("[I")) &&
         std::isdigit(static_cast<unsigned char>(line[2])) != 0;
}

// "INFO:root:...", "[INFO] ...", "2026-01-31 12:00:00 INFO ...", "... - DEBUG - ...": what a
// program logs as it goes, which is no cause.
bool is_chatter(std::string_view line) {
  auto contains = [&](const std::string& words) { return line.find(words) != std::string::npos; };
  bool has_head =
      !line.empty() && (line[0] == '[' || std::isdigit(static_cast<unsigned char>(line[0])) != 0);
  return std::ranges::any_of(std::array{"INFO", "DEBUG"}, [&](const std::string& level) {
    return line.starts_with(level + ":") || line.starts_with("[" + level) ||
           contains(" - " + level + " - ") || (has_head && contains(" " + level + " "));
  });
}

// "/usr/lib/x.py:869: UserWarning: ...", as the module `warnings` writes it before the source line.
bool is_warning(std::string_view line) {
  std::size_t place = line.find(".py:");
  if (place == std::string_view::npos) return false;
  std::string_view rest = line.substr(place + std::string_view(".py:").size());
  std::size_t after_number = rest.find_first_not_of("0123456789");
  if (after_number == 0 || after_number == std::string_view::npos) return false;
  rest.remove_prefix(after_number);
  return rest.starts_with(": ") && rest.find("Warning: ") != std::string_view::npos;
}

// The source line that follows a warning.
bool is_of_a_warning(const std::vector<std::string>& lines, std::size_t index) {
  return index > 0 && lines[index].starts_with("  ") && is_warning(lines[index - 1]);
}

// " 50%|#####     | 1/2 [00:01<00:01,  1.00s/it]": tqdm's.
bool is_progress(std::string_view line) {
  std::size_t bar = line.find("%|");
  return bar != std::string_view::npos && line.find("| ", bar + 2) != std::string_view::npos &&
         line.find('[', bar) != std::string_view::npos;
}

// What NCCL says after an exception of torch's that only names the kind: "Last error:" and, in the
// next line, its own words.  "" where there are none.
std::string_view last_error_of_nccl(const std::vector<std::string>& lines, std::size_t exception) {
  constexpr std::size_t kFar = 3;  // lines from the exception to the heading
  const std::size_t end = std::min(lines.size(), exception + kFar + 1);
  for (std::size_t i = exception + 1; i + 1 < lines.size() && i < end; ++i) {
    if (without_rank(lines[i]) != "Last error:") continue;
    std::string_view words = without_rank(lines[i + 1]);
    return is_blank(words) || words.starts_with("Exception raised from ") ? "" : words;
  }
  return "";
}

bool is_dump(std::string_view line) {
  return std::ranges::any_of(kDump,
                             [&](std::string_view begin) { return line.starts_with(begin); });
}

}  // namespace

std::string error_line(const std::vector<std::string>& lines) {
  std::string_view last;
  std::string_view last_own;
  for (std::size_t index = lines.size(); index-- > 0;) {
    std::string_view line = last_state_of(lines[index]);
    if (auto exception = exception_in(line)) {
      std::string_view words = last_error_of_nccl(lines, index);
      if (words.empty()) return std::string(*exception);
      return std::string(exception->substr(0, exception->find(": "))) + ": " + std::string(words);
    }
    if (is_blank(line) || is_chatter(line) || is_progress(line) || is_warning(line) ||
        is_of_a_warning(lines, index))
      continue;
    if (last.empty()) last = line;
    if (last_own.empty() && !is_remark(line) && !is_dump(line)) last_own = line;
  }
  return std::string(last_own.empty() ? last : last_own);
}

std::vector<std::string> telling_lines(const std::vector<std::string>& lines, std::size_t most) {
  std::vector<std::string> telling;
  std::ranges::copy_if(lines, std::back_inserter(telling), [](std::string_view line) {
    return !is_blank(line) && !without_rank(line).starts_with(kFrame);
  });
  if (telling.empty()) telling = lines;
  if (telling.size() > most)
    telling.erase(telling.begin(), telling.end() - static_cast<std::ptrdiff_t>(most));
  return telling;
}

}  // namespace ddprun::agent
