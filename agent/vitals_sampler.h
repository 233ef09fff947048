// SPDX-License-Identifier: BSD-3-Clause
//
// Looks at the workers every few seconds and says how they are, to people who watch the run.  It
// looks on a thread of its own, which begins with the first look, so a /proc, a disk or a driver
// that stands still holds nothing up: the looks then come later.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "agent/decide/vitals_book.h"
#include "agent/nvml.h"
#include "agent/workers.h"
#include "store/task_group.h"
#include "worker/process/io_thread.h"

namespace ddprun::agent {

struct VitalsConfig {
  Duration period{};               // zero: never
  bool is_progress_only = false;   // only states, steps and output: what the pace is seen by
  bool shares_last_lines = false;  // the last line of each worker is said, too
  bool keeps_logs = false;         // and where the logs are
};

// Threads: used from the executor's only thread.
// Lifetime: borrows the workers.  stop() must have completed before the destructor runs.
class VitalsSampler {
 public:
  // `say` gets the text of the vitals (rendezvous/decide/vitals.h).
  VitalsSampler(boost::asio::any_io_executor executor, VitalsConfig config, Workers& workers,
                std::function<void(std::string)> say);

  // The workers of this round run.  The first look comes after one period.
  void start(std::uint64_t round);
  // They are being stopped, and are looked at no longer.
  void workers_stop();
  boost::asio::awaitable<void> stop();

 private:
  boost::asio::awaitable<void> watch();
  boost::asio::awaitable<void> look();

  VitalsConfig config_;
  Workers& workers_;
  std::function<void(std::string)> say_;
  process::IoThread thread_;
  std::shared_ptr<Nvml> nvml_ = std::make_shared<Nvml>();
  VitalsBook book_;
  boost::asio::steady_timer timer_;
  bool is_running_ = false;
  bool has_watched_ = false;
  store::TaskGroup tasks_;
};

}  // namespace ddprun::agent
