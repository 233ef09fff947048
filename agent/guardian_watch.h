// SPDX-License-Identifier: BSD-3-Clause
//
// Keeps a guardian beside the agent: one that ends is replaced, as soon as one can be forked.
#pragma once

#include <spdlog/fwd.h>
#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "store/base/time.h"
#include "worker/process/guardian.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper and `spared`, the children that a sweep leaves alone, into which it
// puts the guardian while that runs.  The reaper must end first, or nothing may run any more.
class GuardianWatch {
 public:
  // `guardian`: nullptr for none, and then there will be none.
  GuardianWatch(boost::asio::any_io_executor executor, process::Reaper& reaper,
                std::set<pid_t>& spared, std::shared_ptr<process::Guardian> guardian,
                std::shared_ptr<spdlog::logger> logger);

  // No other is forked from now on.
  void stop();

 private:
  void watch();
  void ended(process::ExitStatus status);
  void start(const std::string& what);
  void start_later();

  process::Reaper& reaper_;
  std::set<pid_t>& spared_;
  std::shared_ptr<process::Guardian> guardian_;
  std::shared_ptr<spdlog::logger> logger_;
  boost::asio::steady_timer again_;
  std::optional<MonoTime> replaced_at_;  // the last time
  bool lacks_one_ = false;               // and that has been said
  int quick_deaths_ = 0;                 // of guardians, one after the other
};

}  // namespace ddprun::agent
