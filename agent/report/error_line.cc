// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/error_line.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "agent/report/line_kinds.h"
#include "agent/report/tracebacks.h"
#include "store/base/text.h"

namespace ddprun::agent {
namespace {

// Without the "[rank1]: " that torch puts before each line of an exception, and "[rank1]:" before
// those of its logs.
std::string_view without_rank(std::string_view line) {
  constexpr std::string_view kBegin = "[rank";
  constexpr std::string_view kEnd = "]:";
  if (!line.starts_with(kBegin)) return line;
  std::size_t end = line.find_first_not_of("0123456789", kBegin.size());
  if (end == kBegin.size() || end == std::string_view::npos) return line;
  if (!line.substr(end).starts_with(kEnd)) return line;
  line.remove_prefix(end + kEnd.size());
  return line.starts_with(' ') ? line.substr(1) : line;
}

// Without what colours it on a terminal: ECMA-48's control sequences, "ESC [ ... letter".
std::string without_colours(std::string_view line) {
  constexpr std::string_view kBegin = "\x1b[";
  std::string plain;
  for (std::size_t begin = 0; (begin = line.find(kBegin)) != std::string_view::npos;) {
    plain += line.substr(0, begin);
    std::size_t end = begin + kBegin.size();
    while (end < line.size() && (line[end] < '@' || line[end] > '~')) ++end;
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return plain.append(line);
}

// The source line that follows a warning.
bool is_of_a_warning(const std::vector<std::string>& lines, std::size_t index) {
  return index > 0 && lines[index].starts_with("  ") && is_warning(lines[index - 1]);
}

// What faulthandler has written from `index` on: "Segmentation fault in load (data.py:40)"; empty
// for an abort, which is somebody's answer to what stands before it.
std::string fatal_error(const std::vector<std::string>& lines, std::size_t index) {
  constexpr std::string_view kFatal = "Fatal Python error: ";
  constexpr std::string_view kFile = "  File \"";
  std::string text = lines[index].substr(kFatal.size());
  if (text == "Aborted") return "";
  auto begin = lines.begin() + static_cast<std::ptrdiff_t>(index);
  auto current = std::find_if(begin, lines.end(), [](const std::string& line) {
    return line.starts_with("Current thread 0x");
  });
  if (current == lines.end() || std::next(current) == lines.end()) return text;
  std::string_view frame = *std::next(current);
  std::size_t end = frame.find("\", line ");
  std::size_t in = frame.find(" in ", std::min(end, frame.size()));
  if (!frame.starts_with(kFile) || in == std::string_view::npos) return text;
  std::string_view number = frame.substr(end + 8, in - end - 8);
  std::string_view path = frame.substr(kFile.size(), end - kFile.size());
  return text + " in " + std::string(frame.substr(in + 4)) + " (" +
         std::string(path.substr(path.rfind('/') + 1)) + ":" + std::string(number) + ")";
}

// The last line that may say why, where no exception is named.
std::string last_words(const std::vector<std::string>& lines, const Tracebacks& tracebacks) {
  std::string_view last;
  for (std::size_t index = lines.size(); index-- > 0;) {
    std::string_view line = lines[index];
    if (line.starts_with("Fatal Python error: ")) {
      if (std::string fatal = fatal_error(lines, index); !fatal.empty()) return fatal;
    }
    if (is_blank(line) || is_chatter(line) || is_progress(line) || is_warning(line) ||
        is_of_a_warning(lines, index) || tracebacks.is_ignored(index))
      continue;
    if (!is_remark(line) && !is_dump(line)) return std::string(line);
    if (last.empty()) last = line;
  }
  return std::string(last);
}

}  // namespace

std::string error_line(const std::vector<std::string>& lines) {
  std::vector<std::string> plain;
  for (const std::string& line : lines)
    plain.emplace_back(without_rank(last_state_of(without_colours(line))));
  Tracebacks tracebacks(plain);
  std::string words = tracebacks.last(ExceptionWeight::Fatal);
  if (words.empty()) words = tracebacks.last(ExceptionWeight::OfThread);
  if (words.empty()) words = last_words(plain, tracebacks);
  if (words.empty()) words = tracebacks.last(ExceptionWeight::Ignored);
  words.erase(words.find_last_not_of(" \t") + 1);
  return words;
}

std::string reported_error(const std::string& message, const std::string& traceback) {
  std::string_view first = std::string_view(message).substr(0, message.find('\n'));
  bool is_of_another = has_traceback(message);
  std::string words;
  if (is_of_another) words = error_line(lines_of(message));
  if (is_python_exception(first) && is_exception_group(first))
    words = error_line(lines_of(traceback));
  if (words.empty()) words = message;
  std::size_t end = words.find_last_not_of(": ");
  bool has_no_text =
      end != std::string::npos && is_exception_name(std::string_view(words).substr(0, end + 1));
  return has_no_text ? words.substr(0, end + 1) : words;
}

std::vector<std::string> telling_lines(const std::vector<std::string>& lines, std::size_t most) {
  std::vector<std::string> telling;
  for (const std::string& line : lines) {
    std::string plain = without_colours(line);
    bool is_telling = !is_blank(plain) && !is_frame_of_torch(without_rank(plain)) &&
                      !plain.starts_with("Extension modules: ");
    if (is_telling) telling.push_back(std::move(plain));
  }
  if (telling.empty()) telling = lines;
  if (telling.size() > most)
    telling.erase(telling.begin(), telling.end() - static_cast<std::ptrdiff_t>(most));
  return telling;
}

}  // namespace ddprun::agent
