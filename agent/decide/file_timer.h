// SPDX-License-Identifier: BSD-3-Clause
//
// The timers of torch's file timer protocol: a worker says, in one line of JSON, until when it
// wants to be done with something, and later that it is.  Pure: lines and the time in, expired
// timers out. agent/timer_pipe does the reading.
//
// Source: torch/distributed/elastic/timer/file_based_local_timer.py, protocol version 1.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "store/base/error.h"
#include "store/base/time.h"

namespace ddprun::agent {

struct ExpiredTimer {
  int pid = 0;
  std::string scope;  // what the worker calls it
  int signal = 0;     // that the worker wants to be ended by; 0 or less: it is to go on
};

class FileTimers {
 public:
  // Takes one line, without its end: {"version": 1, "pid": 7, "scope_id": "step",
  // "expiration_time": 1763733600.5, "signal": 9}, the time in seconds since the epoch, negative
  // for a release.  Fails with Errc::Protocol and what is wrong with the line; the timers are as
  // before then.
  Result<void> take(std::string_view line);

  // The timer that expired first and is over at `now`, and is no more.  Once a timer of a process
  // that is to be ended has been told, its others are none either.
  std::optional<ExpiredTimer> next_expired(WallTime now);

  // When the next one is due.
  std::optional<WallTime> next_due() const;

  void clear() { timers_.clear(); }

  // More timers than this at a time are refused.
  static constexpr std::size_t kMaxTimers = 100'000;

 private:
  struct Timer {
    WallTime due{};
    int signal = 0;
  };
  std::map<std::pair<int, std::string>, Timer> timers_;  // by pid and scope
};

}  // namespace ddprun::agent
