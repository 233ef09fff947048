// SPDX-License-Identifier: BSD-3-Clause
//
// Cuts a worker's output into whole lines and puts the rank's prefix before each, so that the
// lines of several workers share a terminal without being torn.  Bytes pass untouched, but for a
// carriage return inside a line (a progress bar), which ends the line: several bars cannot
// overwrite each other on one terminal, and would otherwise show up only at their end.
#pragma once

#include <string>
#include <string_view>

namespace ddprun::process {

class LineSplitter {
 public:
  // A line longer than this is passed on in pieces, since it must be held until it is whole. Bytes.
  static constexpr std::size_t kMaxLineBytes = 1024 * 1024;

  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  // For the lines that become whole from now on.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
  const std::string& prefix() const { return prefix_; }

  // Takes the next bytes and appends to `lines` those that are whole now, each with its prefix and
  // its newline.
  void feed(std::string_view bytes, std::string& lines);

  // Appends what is left of a line that has no end, with a newline added.
  void finish(std::string& lines);

 private:
  void feed_with_returns(std::string_view bytes, std::string& lines);
  void end_line(std::string_view end, std::string_view newline, std::string& lines);

  std::string prefix_;
  std::string partial_;
};

}  // namespace ddprun::process
