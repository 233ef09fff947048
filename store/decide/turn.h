// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>

namespace ddprun::store {

// How much has been done since the server last looked for what else there is to do.  When a turn is
// over, what can wait does: no client is kept waiting for long, whatever the others ask.
//
// Threads: not safe for concurrent use.
class Turn {
 public:
  // About two milliseconds (effort.h).
  static constexpr std::size_t kEffort = 8192;

  void begin() {
    most_ = most();
    spent_ = 0;
  }
  void spend(std::size_t effort) { spent_ += effort; }

  std::size_t spent() const { return spent_; }
  bool is_over() const { return spent_ >= kEffort; }
  // What costs much is begun only in the first half.
  bool is_half_over() const { return spent_ >= kEffort / 2; }

  // What the longest turn has cost.
  std::size_t most() const { return std::max(most_, spent_); }

 private:
  std::size_t spent_ = 0;
  std::size_t most_ = 0;
};

}  // namespace ddprun::store
