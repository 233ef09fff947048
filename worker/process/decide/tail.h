// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::process {

// Keeps the end of a stream, to show what was said last.
class Tail {
 public:
  static constexpr std::size_t kKeptBytes = 16 * 1024;  // twice that for a moment

  void feed(std::string_view bytes);

  // The last lines, at most `count`, without line ends.  A first line that was cut is left out
  // where there are others.
  std::vector<std::string> lines(std::size_t count) const;

  // How much has been fed in all.
  std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  std::string kept_;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace ddprun::process
