// SPDX-License-Identifier: BSD-3-Clause
//
// A log that a stranger cannot fill: a port scanner or a broken client may give cause for a line a
// thousand times a second.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "store/base/time.h"

namespace ddprun::store {

class RateLimitedLog {
 public:
  using Write = std::function<void(const std::string&)>;

  // So many lines are written in so long; then one line says how many were left out.
  static constexpr std::size_t kLines = 20;
  static constexpr Duration kWindow = std::chrono::seconds(10);

  explicit RateLimitedLog(Write write) : write_(std::move(write)) {}

  void line(const std::string& sentence, MonoTime now);

 private:
  Write write_;
  MonoTime window_end_{};
  std::size_t written_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace ddprun::store
