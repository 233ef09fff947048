// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/error_line.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "agent/report/job_report.h"
#include "store/base/text.h"

namespace ddprun::agent {
namespace {

constexpr std::string_view kWhat = "what():";
constexpr std::string_view kTraceback = "raceback (most recent call last):";

// Of torch's C++ backtraces.
constexpr std::string_view kFrame = "frame #";
// And of faulthandler's dump; "Fatal Python error: Aborted" only says the signal once more.
constexpr std::array<std::string_view, 7> kDump = {
    kFrame,      "Fatal Python error: ", "Thread 0x",          "Current thread 0x",
    "  File \"", "Extension modules:",   "  <no Python frame>"};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

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

// Of a line in a traceback of Python's exception groups, "  | ValueError: ..." or
// "  +-+---------- 1 ----------", where the text begins; 0 for another line.
std::size_t text_of_group(std::string_view line) {
  std::size_t bar = line.find_first_not_of(' ');
  if (bar == 0 || bar == std::string_view::npos) return 0;
  std::string_view rest = line.substr(bar);
  if (rest.starts_with("+ Exception Group ") || rest.starts_with("| ")) return bar + 2;
  return rest.starts_with("+-") ? line.size() : 0;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '<' || c == '>';  // f.<locals>.X
  });
}

bool is_python_exception(std::string_view line) {
  std::string_view name = line.substr(0, line.find(": "));
  return is_name(name) &&
         (name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Interrupt") ||
          name.ends_with("Exit") || name.ends_with("Group"));
}

bool is_group(std::string_view exception) {
  return exception.substr(0, exception.find(": ")).ends_with("Group");
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

// "INFO:root:...", "[INFO] ...", "2026-01-31 12:00:00 INFO ...", "... - INFO - ...".
bool is_logged_at(std::string_view line, const std::string& level) {
  auto contains = [&](const std::string& words) { return line.find(words) != std::string::npos; };
  bool has_head =
      !line.empty() && (line[0] == '[' || std::isdigit(static_cast<unsigned char>(line[0])) != 0);
  return line.starts_with(level + ":") || line.starts_with("[" + level) ||
         contains(" - " + level + " - ") || (has_head && contains(" " + level + " "));
}

// "[W1122 03:58:17.1 file.cpp:12] ...": torch's logs, at a level below an error; and warnings.
bool is_remark(std::string_view line) {
  bool is_of_torch = line.size() > 2 && (line.starts_with("[W") || line.starts_with("[I")) &&
                     std::isdigit(static_cast<unsigned char>(line[2])) != 0;
  return is_of_torch || is_logged_at(line, "WARNING");
}

// What a program logs as it goes, which is no cause.
bool is_chatter(std::string_view line) {
  return is_logged_at(line, "INFO") || is_logged_at(line, "DEBUG");
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
bool is_bar_of_tqdm(std::string_view line) {
  std::size_t bar = line.find("%|");
  return bar != std::string_view::npos && line.find("| ", bar + 2) != std::string_view::npos &&
         line.find('[', bar) != std::string_view::npos;
}

// "12/40 [======>.....] - ETA: 3s", "epoch 1 ━━━━━━━━━━ 50% 0:00:02": a row of the same sign, and
// how far it is.
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

bool is_dump(std::string_view line) {
  return std::ranges::any_of(kDump,
                             [&](std::string_view begin) { return line.starts_with(begin); });
}

// What an exception's next line adds to one that ends in a colon, as torch's "Error(s) in loading
// state_dict for Net:" does: it is indented.
std::string more_of(std::string_view line) {
  std::size_t text = line.find_first_not_of(" \t");
  return text == 0 || text == std::string_view::npos ? "" : " " + std::string(line.substr(text));
}

// How much an exception's traceback says of the program's end.
enum class Weight {
  Fatal,
  OfThread,  // which has ended; the program may have gone on
  Ignored,   // by Python, which says so and goes on
};

// By the line that stands before the traceback.
std::optional<Weight> weight_after(std::string_view heading) {
  constexpr std::array kOfThread = {"Exception in thread ", "Task exception was never retrieved"};
  constexpr std::array kIgnored = {"Exception ignored ", "--- Logging error ---",
                                   "Error in atexit.", "Error in sys.excepthook:"};
  auto begins = [&](std::string_view begin) { return heading.starts_with(begin); };
  if (std::ranges::any_of(kIgnored, begins)) return Weight::Ignored;
  if (std::ranges::any_of(kOfThread, begins)) return Weight::OfThread;
  return std::nullopt;
}

// Reads the lines from the first to the last, and finds where each exception is named: by its name,
// or since it ends a traceback.
class Tracebacks {
 public:
  explicit Tracebacks(const std::vector<std::string>& lines) : lines_(lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) read(i);
  }

  // The last one of that weight; "" for none.
  const std::string& last(Weight weight) const { return last_[static_cast<std::size_t>(weight)]; }

  // Whether the line belongs to one that Python has ignored.
  bool is_ignored(std::size_t index) const { return ignored_.contains(index); }

 private:
  void read(std::size_t index) {
    std::string_view line = lines_[index];
    std::size_t text = text_of_group(line);
    bool is_in_group = text > 0;
    line.remove_prefix(text);
    if (!is_in_group) group_ = nullptr;
    if (auto weight = weight_after(line)) {
      weight_ = *weight;
      is_in_frames_ = false;
    } else if (line.ends_with(kTraceback)) {
      is_in_frames_ = true;
    } else if (line.starts_with("During handling of the above exception") ||
               line.starts_with("The above exception was the direct cause")) {
      weight_ = weight_before_;
    } else if (is_in_frames_ && (is_blank(line) || line.starts_with(' '))) {
      // a frame, or the source line in it
    } else if (auto exception = ends_traceback(line) ? line : exception_in(line)) {
      if (weight_ == Weight::Ignored) ignored_.insert(index);
      names(*exception, index, is_in_group);
      return;
    } else if (!is_blank(line) && !line.starts_with("future: ")) {
      weight_ = Weight::Fatal;
    }
    if (weight_ == Weight::Ignored) ignored_.insert(index);
  }

  bool ends_traceback(std::string_view line) {
    return std::exchange(is_in_frames_, false) && is_name(line.substr(0, line.find(':')));
  }

  // Of the exceptions in a group, its line names the first.
  void names(std::string_view exception, std::size_t index, bool is_in_group) {
    if (group_ != nullptr) {
      if (is_first_to_come_ && !is_group(exception)) *group_ += ": " + std::string(exception);
      if (!is_group(exception)) is_first_to_come_ = false;
      return;
    }
    std::string& last = last_[static_cast<std::size_t>(weight_)];
    last = exception;
    if (std::string_view words = last_error_of_nccl(lines_, index); !words.empty())
      last = last.substr(0, last.find(": ")) + ": " + std::string(words);
    if (last.ends_with(':') && index + 1 < lines_.size()) last += more_of(lines_[index + 1]);
    is_first_to_come_ = is_in_group && is_group(exception);
    if (is_first_to_come_) group_ = &last;
    weight_before_ = std::exchange(weight_, Weight::Fatal);
  }

  const std::vector<std::string>& lines_;
  std::array<std::string, 3> last_;  // by Weight
  std::set<std::size_t> ignored_;
  Weight weight_ = Weight::Fatal;         // of the next exception
  Weight weight_before_ = Weight::Fatal;  // of the one before
  bool is_in_frames_ = false;
  std::string* group_ = nullptr;   // whose members are being read
  bool is_first_to_come_ = false;  // of them
};

// The last line that may say why, where no exception is named.
std::string last_words(const std::vector<std::string>& lines, const Tracebacks& tracebacks) {
  std::string_view last;
  for (std::size_t index = lines.size(); index-- > 0;) {
    std::string_view line = lines[index];
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
  std::string words = tracebacks.last(Weight::Fatal);
  if (words.empty()) words = tracebacks.last(Weight::OfThread);
  if (words.empty()) words = last_words(plain, tracebacks);
  if (words.empty()) words = tracebacks.last(Weight::Ignored);
  words.erase(words.find_last_not_of(" \t") + 1);
  return words;
}

std::string reported_error(const std::string& message, const std::string& traceback) {
  std::string_view first = std::string_view(message).substr(0, message.find('\n'));
  bool is_of_another = message.find(kTraceback) != std::string::npos;
  std::string words;
  if (is_of_another) words = error_line(lines_of(message));
  if (is_python_exception(first) && is_group(first)) words = error_line(lines_of(traceback));
  if (words.empty()) words = message;
  std::size_t end = words.find_last_not_of(": ");
  bool has_no_text =
      end != std::string::npos && is_name(std::string_view(words).substr(0, end + 1));
  return has_no_text ? words.substr(0, end + 1) : words;
}

std::vector<std::string> telling_lines(const std::vector<std::string>& lines, std::size_t most) {
  std::vector<std::string> telling;
  for (const std::string& line : lines) {
    std::string plain = without_colours(line);
    if (!is_blank(plain) && !without_rank(plain).starts_with(kFrame))
      telling.push_back(std::move(plain));
  }
  if (telling.empty()) telling = lines;
  if (telling.size() > most)
    telling.erase(telling.begin(), telling.end() - static_cast<std::ptrdiff_t>(most));
  return telling;
}

}  // namespace ddprun::agent
