// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/rate_limited_log.h"

#include <algorithm>

namespace ddprun::store {

void RateLimitedLog::line_once(const std::string& sentence, MonoTime now) {
  bool is_known = now < window_end_ && std::ranges::find(written_, sentence) != written_.end();
  if (is_known) {
    ++left_out_;
  } else {
    line(sentence, now);
  }
}

void RateLimitedLog::line(const std::string& sentence, MonoTime now) {
  if (!write_) return;
  tell_left_out(now);
  if (now >= window_end_) {
    window_end_ = now + kWindow;
    written_.clear();
  }
  if (written_.size() == kLines) {
    ++left_out_;
    return;
  }
  written_.push_back(sentence);
  write_(sentence);
}

void RateLimitedLog::tell_left_out(MonoTime now) {
  if (left_out_ == 0 || now < window_end_) return;
  write_(std::to_string(left_out_) + " lines like the last ones were left out");
  left_out_ = 0;
}

}  // namespace ddprun::store
