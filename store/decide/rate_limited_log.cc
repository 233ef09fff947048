// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/rate_limited_log.h"

namespace ddprun::store {

void RateLimitedLog::line(const std::string& sentence, MonoTime now) {
  if (!write_) return;
  if (now >= window_end_) {
    if (left_out_ > 0)
      write_(std::to_string(left_out_) + " lines like the last ones were left out");
    window_end_ = now + kWindow;
    written_ = left_out_ = 0;
  }
  if (written_ == kLines) {
    ++left_out_;
    return;
  }
  ++written_;
  write_(sentence);
}

}  // namespace ddprun::store
