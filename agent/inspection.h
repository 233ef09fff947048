// SPDX-License-Identifier: BSD-3-Clause
//
// Sees what the workers do when one has waited in vain for others, before they are stopped: by
// their stacks and what the kernel says of them (agent/stack_reader), and by what they have
// written.  It takes a second: workers that waited as well come to their end within it, and are no
// suspects.  Of a lost peer it only sees what they have written, and who ends: that takes half a
// second at most.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/stack_reader.h"
#include "agent/workers.h"
#include "rendezvous/decide/findings.h"
#include "store/base/time.h"
#include "store/task_group.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

struct InspectionConfig {
  Duration limit = std::chrono::seconds(1);
  Duration end_limit = std::chrono::milliseconds(500);  // where a peer was lost
  StackReaderConfig tools{};
};

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper, the thread for the disk and the workers.  stop() must have
// completed before the destructor runs.
class Inspection {
 public:
  Inspection(boost::asio::any_io_executor executor, process::Reaper& reaper,
             process::IoThread& disk, InspectionConfig config, Workers& workers,
             std::function<void(rendezvous::Findings)> on_found);

  // Begins to look.  on_found is called once, unless interrupt() comes before.  `wait`: that is
  // over.
  void begin(rendezvous::TimedOutWait wait);

  // Ends it without a result.  Returns the pids of the tools that are just ending, which a sweep
  // leaves alone.
  std::set<pid_t> interrupt();

  boost::asio::awaitable<void> stop();

 private:
  using StderrLines = std::map<int, std::vector<std::string>>;  // of log files, by local rank
  using CpuTimes = std::map<pid_t, Duration>;                   // of main threads
  boost::asio::awaitable<void> look(rendezvous::TimedOutWait wait, int number);
  boost::asio::awaitable<void> until_all_end(Duration limit, int number);
  CpuTimes cpu_times() const;
  std::set<pid_t> busy_since(const CpuTimes& before, MonoTime began) const;
  rendezvous::Findings judge(const rendezvous::TimedOutWait& wait, const SeenWorkers& seen,
                             const StderrLines& stderr_lines, const std::set<pid_t>& busy) const;

  InspectionConfig config_;
  process::IoThread& disk_;
  Workers& workers_;
  std::function<void(rendezvous::Findings)> on_found_;
  StackReader stacks_;
  boost::asio::steady_timer timer_;
  int number_ = 0;  // counts begin() and interrupt()
  store::TaskGroup tasks_;
};

}  // namespace ddprun::agent
