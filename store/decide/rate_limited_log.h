// SPDX-License-Identifier: BSD-3-Clause
//
// A log that a stranger cannot fill: a port scanner or a broken client may give cause for a line a
// thousand times a second.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/base/time.h"

namespace ddprun::store {

class RateLimitedLog {
 public:
  using Write = std::function<void(const std::string&)>;

  // So many lines are written in so long; then one line says how many were left out: before the
  // next one, or by tell_left_out().
  static constexpr std::size_t kLines = 20;
  static constexpr Duration kWindow = std::chrono::seconds(10);

  explicit RateLimitedLog(Write write) : write_(std::move(write)) {}

  void line(const std::string& sentence, MonoTime now);
  // The same, but what has been written in that time already is left out.
  void line_once(const std::string& sentence, MonoTime now);

  // When tell_left_out() has something to say, if it has.
  std::optional<MonoTime> deadline() const {
    return left_out_ > 0 ? std::optional(window_end_) : std::nullopt;
  }
  void tell_left_out(MonoTime now);

 private:
  Write write_;
  MonoTime window_end_{};
  std::vector<std::string> written_;  // in this window
  std::size_t left_out_ = 0;
};

}  // namespace ddprun::store
