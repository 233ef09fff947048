// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/tracebacks.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "agent/report/line_kinds.h"

namespace ddprun::agent {
namespace {

constexpr std::string_view kTraceback = "raceback (most recent call last):";
constexpr std::string_view kLoggingError = "--- Logging error ---";
constexpr std::string_view kWhat = "what():";

// Of a line in a traceback of Python's exception groups, "  | ValueError: ..." or
// "  +-+---------- 1 ----------", where the text begins; 0 for another line.
std::size_t text_of_group(std::string_view line) {
  std::size_t bar = line.find_first_not_of(' ');
  if (bar == 0 || bar == std::string_view::npos) return 0;
  std::string_view rest = line.substr(bar);
  if (rest.starts_with("+ Exception Group ") || rest.starts_with("| ")) return bar + 2;
  return rest.starts_with("+-") ? line.size() : 0;
}

// The exception that the line names, if it names one.
std::optional<std::string_view> exception_in(std::string_view line) {
  if (is_python_exception(line)) return line;
  std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  if (!line.substr(begin).starts_with(kWhat)) return std::nullopt;
  line.remove_prefix(begin + kWhat.size());
  if (is_blank(line)) return std::nullopt;
  return line.substr(line.find_first_not_of(' '));
}

// What NCCL says after an exception of torch's that only names the kind: "Last error:" and, in the
// next line, its own words.  "" where there are none.
std::string_view last_error_of_nccl(const std::vector<std::string>& lines, std::size_t exception) {
  constexpr std::size_t kFar = 3;  // lines from the exception to the heading
  const std::size_t end = std::min(lines.size(), exception + kFar + 1);
  for (std::size_t i = exception + 1; i + 1 < lines.size() && i < end; ++i) {
    if (lines[i] != "Last error:") continue;
    std::string_view words = lines[i + 1];
    return is_blank(words) || words.starts_with("Exception raised from ") ? "" : words;
  }
  return "";
}

// What an exception's next line adds to one that ends in a colon, as torch's "Error(s) in loading
// state_dict for Net:" does: it is indented.
std::string more_of(std::string_view line) {
  std::size_t text = line.find_first_not_of(" \t");
  return text == 0 || text == std::string_view::npos ? "" : " " + std::string(line.substr(text));
}

// By the line that stands before the traceback.  asyncio logs its own, in whatever format.
std::optional<ExceptionWeight> weight_after(std::string_view heading) {
  constexpr std::array<std::string_view, 4> kIgnored = {
      "Exception ignored ", kLoggingError, "Error in atexit.", "Error in sys.excepthook:"};
  auto begins = [&](std::string_view begin) { return heading.starts_with(begin); };
  if (std::ranges::any_of(kIgnored, begins)) return ExceptionWeight::Ignored;
  bool is_of_task = heading.ends_with("Task exception was never retrieved") ||
                    heading.find("Exception in callback ") != std::string_view::npos;
  if (begins("Exception in thread ") || is_of_task) return ExceptionWeight::OfThread;
  return std::nullopt;
}

// What asyncio says between the heading and the traceback.
bool is_about_task(std::string_view line) {
  return line.starts_with("future: ") || line.starts_with("handle: ");
}

// What another thread has said may stand there, too.
bool is_between_frames(std::string_view line) {
  return is_blank(line) || line.starts_with(' ') || is_chatter(line) || is_remark(line) ||
         is_warning(line) || is_progress(line);
}

// What logging says of its own error behind the exception.
bool is_of_logging_error(std::string_view line) {
  return line.starts_with(' ') || line == "Call stack:" || line.starts_with("Message: ") ||
         line.starts_with("Arguments: ");
}

}  // namespace

bool is_exception_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '<' || c == '>';  // f.<locals>.X
  });
}

bool is_python_exception(std::string_view line) {
  std::string_view name = line.substr(0, line.find(": "));
  return is_exception_name(name) &&
         (name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Interrupt") ||
          name.ends_with("Exit") || is_exception_group(line));
}

bool is_exception_group(std::string_view exception) {
  return exception.substr(0, exception.find(": ")).ends_with("ExceptionGroup");
}

bool has_traceback(std::string_view text) {
  return text.find(kTraceback) != std::string_view::npos;
}

void Tracebacks::read(std::size_t index) {
  std::string_view line = lines_[index];
  std::size_t text = text_of_group(line);
  bool is_in_group = text > 0;
  line.remove_prefix(text);
  if (!is_in_group) group_ = nullptr;
  if (auto weight = weight_after(line)) {
    weight_ = *weight;
    is_in_frames_ = false;
    is_in_logging_error_ = line.starts_with(kLoggingError);
  } else if (line.ends_with(kTraceback)) {
    is_in_frames_ = true;
  } else if (line.starts_with("During handling of the above exception") ||
             line.starts_with("The above exception was the direct cause")) {
    weight_ = weight_before_;
  } else if (is_in_frames_ && is_between_frames(line)) {
    // a frame, or the source line in it
  } else if (auto exception = ends_traceback(line) ? line : exception_in(line)) {
    if (weight_ == ExceptionWeight::Ignored) ignored_.insert(index);
    names(*exception, index, is_in_group);
    return;
  } else if (is_in_logging_error_ && is_of_logging_error(line)) {
    ignored_.insert(index);
  } else if (!is_blank(line) && !is_about_task(line)) {
    weight_ = ExceptionWeight::Fatal;
    is_in_logging_error_ = false;
  }
  if (weight_ == ExceptionWeight::Ignored) ignored_.insert(index);
}

bool Tracebacks::ends_traceback(std::string_view line) {
  return std::exchange(is_in_frames_, false) && is_exception_name(line.substr(0, line.find(':')));
}

// Of the exceptions in a group, its line names the first.
void Tracebacks::names(std::string_view exception, std::size_t index, bool is_in_group) {
  if (group_ != nullptr) {
    if (is_first_to_come_ && !is_exception_group(exception))
      *group_ += ": " + std::string(exception);
    if (!is_exception_group(exception)) is_first_to_come_ = false;
    return;
  }
  std::string& last = last_[static_cast<std::size_t>(weight_)];
  last = exception;
  if (std::string_view words = last_error_of_nccl(lines_, index); !words.empty())
    last = last.substr(0, last.find(": ")) + ": " + std::string(words);
  if (last.ends_with(':') && index + 1 < lines_.size()) last += more_of(lines_[index + 1]);
  is_first_to_come_ = is_in_group && is_exception_group(exception);
  if (is_first_to_come_) group_ = &last;
  weight_before_ = std::exchange(weight_, ExceptionWeight::Fatal);
}

}  // namespace ddprun::agent
