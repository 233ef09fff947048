// SPDX-License-Identifier: BSD-3-Clause
//
// The start of an attempt, until it is known of each worker whether it runs: what has failed, which
// exits are held back meanwhile, and the warning about a slow start.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/decide/worker_exit.h"
#include "agent/workers.h"
#include "rendezvous/handler.h"
#include "store/base/time.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
class AttemptStart {
 public:
  using OnStarted = std::function<void(const std::optional<Workers::StartFailure>&)>;

  struct Parts {
    rendezvous::Round round;
    int workers = 0;      // that are to be started
    std::string program;  // for the warnings
    OnStarted on_started;
    Workers::OnWarning on_warning;
  };
  AttemptStart(const boost::asio::any_io_executor& executor, Parts parts);

  const rendezvous::Round& round() const { return parts_.round; }
  const OnStarted& on_started() const { return parts_.on_started; }

  // The disk has made the log files, or has failed to.
  void set_files_made() { has_files_ = true; }
  bool has_files() const { return has_files_; }

  // One more worker is forked.  All are: from now on a slow exec is warned of.
  void worker_forked() { ++unsettled_; }
  void all_forked();

  // It is known whether a forked worker runs.
  void worker_settled() { --unsettled_; }
  bool is_settled() const { return has_files_ && unsettled_ == 0; }

  // `count` workers from `local_rank` on were not started.  Keeps the reason of the lowest local
  // rank, but one that is the agent's own goes before.  While stopping it is reported at once.
  void fail(int local_rank, std::string why, int exit_code, int count);

  // The workers are to end.  From now on failures alone are reported, and no exit is held back.
  // Returns those so far as one, which the caller reports.
  std::optional<Workers::StartFailure> set_stopping();
  bool is_stopping() const { return is_stopping_; }

  void hold_back(WorkerExit exit) { exits_.push_back(std::move(exit)); }
  std::vector<WorkerExit> take_exits() { return std::exchange(exits_, {}); }

  // All workers are settled: calls on_started, unless stopping.
  void finish();

 private:
  Parts parts_;
  boost::asio::steady_timer slow_;  // for the warning
  MonoTime exec_began_{};           // when the last worker was forked
  bool has_files_ = false;
  bool is_stopping_ = false;
  bool has_warned_ = false;
  int unsettled_ = 0;
  int not_started_ = 0;  // could not be forked, or not become their program
  std::optional<Workers::StartFailure> failure_;
  int failed_local_rank_ = 0;  // its worker
  std::vector<WorkerExit> exits_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::agent
