// SPDX-License-Identifier: BSD-3-Clause
#include "store/limited_log.h"

#include <optional>
#include <utility>

namespace ddprun::store {

LimitedLog::LimitedLog(boost::asio::any_io_executor executor, RateLimitedLog::Write write,
                       std::function<MonoTime()> clock)
    : log_(std::move(write)), clock_(std::move(clock)), timer_(std::move(executor)) {}

void LimitedLog::line(const std::string& sentence) {
  log_.line(sentence, clock_());
  await_end();
}

void LimitedLog::line_once(const std::string& sentence) {
  log_.line_once(sentence, clock_());
  await_end();
}

void LimitedLog::await_end() {
  std::optional<MonoTime> deadline = log_.deadline();
  if (!deadline || !*is_open_ || std::exchange(is_awaited_, true)) return;
  timer_.expires_at(*deadline);
  timer_.async_wait([this, is_open = is_open_](const boost::system::error_code&) {
    if (!*is_open) return;
    is_awaited_ = false;
    log_.tell_left_out(clock_());
    await_end();
  });
}

void LimitedLog::close() {
  *is_open_ = false;
  timer_.cancel();
}

}  // namespace ddprun::store
