// SPDX-License-Identifier: BSD-3-Clause
//
// Cuts a worker's output into whole lines and puts the rank's prefix before each, so that the
// lines of several workers share a terminal without being torn.  Bytes pass untouched.
#pragma once

#include <string>
#include <string_view>

namespace ddprun::process {

class LineSplitter {
 public:
  // A line longer than this is passed on in pieces, since it must be held until it is whole. Bytes.
  static constexpr std::size_t kMaxLineBytes = 1024 * 1024;

  explicit LineSplitter(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes the next bytes and returns the lines that are whole now, each with its prefix and its
  // newline.
  std::string feed(std::string_view bytes);

  // Returns what is left of a line that has no end, with a newline added.
  std::string finish();

 private:
  std::string prefix_;
  std::string partial_;
};

}  // namespace ddprun::process
