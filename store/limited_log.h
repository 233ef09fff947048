// SPDX-License-Identifier: BSD-3-Clause
//
// A log that a stranger cannot fill (store/decide/rate_limited_log.h), and that says what it has
// left out also where no further line follows.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "store/clock.h"
#include "store/decide/rate_limited_log.h"

namespace ddprun::store {

// Threads: used from the executor's thread only.
class LimitedLog {
 public:
  // `write` is called until this object is gone; an empty one is never called.  `clock` may be
  // behind the system's, not ahead of it.
  LimitedLog(boost::asio::any_io_executor executor, RateLimitedLog::Write write,
             std::function<MonoTime()> clock = mono_now);
  ~LimitedLog() { close(); }
  LimitedLog(const LimitedLog&) = delete;
  LimitedLog& operator=(const LimitedLog&) = delete;

  void line(const std::string& sentence);
  void line_once(const std::string& sentence);

  // Nothing is waited for any more; what was left out is not told.
  void close();

 private:
  void await_end();

  RateLimitedLog log_;
  std::function<MonoTime()> clock_;
  boost::asio::steady_timer timer_;
  bool is_awaited_ = false;
  std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);  // held by the timer's handler
};

}  // namespace ddprun::store
