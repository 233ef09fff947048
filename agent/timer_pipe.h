// SPDX-License-Identifier: BSD-3-Clause
//
// The FIFO through which workers set torch's file timers, and the watch over them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "agent/decide/file_timer.h"
#include "store/base/fd.h"

namespace ddprun::agent {

// A FIFO that exists as long as this does.
class TimerFile {
 public:
  // Makes it, in the place of one that an earlier run has left.  Fails with the system's code, or
  // where `path` is something else than a FIFO.
  static Result<TimerFile> create(const std::string& path);

  TimerFile() = default;
  TimerFile(TimerFile&& other) noexcept;
  TimerFile& operator=(TimerFile&& other) noexcept;
  ~TimerFile();

 private:
  friend class TimerPipe;
  TimerFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  Fd fd_;
};

// Threads: used from the executor's only thread.
// Lifetime: after destruction no callback runs.
class TimerPipe {
 public:
  // `on_expired` is told of each timer that has expired, `on_warning` of lines that are none.
  TimerPipe(boost::asio::any_io_executor executor, const TimerFile& file,
            std::function<void(const ExpiredTimer&)> on_expired,
            std::function<void(const std::string&)> on_warning);
  ~TimerPipe();

  // Forgets all timers: their workers have ended.
  void clear() { timers_.clear(); }

 private:
  void read();
  void take_lines();
  void look();

  boost::asio::posix::stream_descriptor pipe_;
  boost::asio::steady_timer timer_;
  std::function<void(const ExpiredTimer&)> on_expired_;
  std::function<void(const std::string&)> on_warning_;
  FileTimers timers_;
  std::string buffer_;
  int bad_lines_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers outlive us by one turn
};

}  // namespace ddprun::agent
