// SPDX-License-Identifier: BSD-3-Clause
//
// The exceptions that a worker's stderr names, and how much each says of the program's end.  Pure.
#pragma once

#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::agent {

// Whether `text` may be the name of one of Python's exceptions, with its modules and scopes.
bool is_exception_name(std::string_view text);

// "ValueError: ...", "KeyboardInterrupt": named as an exception mostly is.
bool is_python_exception(std::string_view line);

// Of a line that names one: whether it is Python's group of exceptions.
bool is_exception_group(std::string_view exception);

// Whether `text` has the line above a traceback in it.
bool has_traceback(std::string_view text);

// How much an exception's traceback says of the program's end.
enum class ExceptionWeight {
  Fatal,
  OfThread,  // which has ended; the program may have gone on
  Ignored,   // by Python, which says so and goes on
};

// Reads the lines from the first to the last, and finds where each exception is named: by its name,
// or since it ends a traceback.
class Tracebacks {
 public:
  // `lines` outlive this object.
  explicit Tracebacks(const std::vector<std::string>& lines) : lines_(lines) {
    for (std::size_t i = 0; i < lines.size(); ++i) read(i);
  }

  // The last one of that weight; "" for none.
  const std::string& last(ExceptionWeight weight) const {
    return last_[static_cast<std::size_t>(weight)];
  }

  // Whether the line belongs to one that Python has ignored, or to logging's own error.
  bool is_ignored(std::size_t index) const { return ignored_.contains(index); }

 private:
  void read(std::size_t index);
  bool ends_traceback(std::string_view line);
  void names(std::string_view exception, std::size_t index, bool is_in_group);

  const std::vector<std::string>& lines_;
  std::array<std::string, 3> last_;  // by ExceptionWeight
  std::set<std::size_t> ignored_;
  ExceptionWeight weight_ = ExceptionWeight::Fatal;         // of the next exception
  ExceptionWeight weight_before_ = ExceptionWeight::Fatal;  // of the one before
  bool is_in_frames_ = false;
  bool is_in_logging_error_ = false;
  std::string* group_ = nullptr;   // whose members are being read
  bool is_first_to_come_ = false;  // of them
};

}  // namespace ddprun::agent
