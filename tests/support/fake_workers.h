// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/workers.h"

namespace ddprun::test {

// Workers without processes: those in `present` run.  What is asked of them goes into `journal`.
class FakeWorkers : public agent::Workers {
 public:
  explicit FakeWorkers(std::vector<std::string>& to) : journal(to) {}

  std::vector<std::string>& journal;
  std::vector<agent::RunningWorker> present;
  std::vector<agent::WorkerExit> held_ends;  // of workers that run no more, not yet reported

  // They come up, or not all of them do.
  void come_up(int count, const std::optional<StartFailure>& failure = std::nullopt) {
    for (int rank = 0; rank < count; ++rank)
      present.push_back({.local_rank = rank, .rank = rank, .pid = 1000 + rank});
    on_started_(failure);
  }
  void end(int local_rank, process::ExitStatus status, std::vector<std::string> stderr_lines = {}) {
    gone(local_rank);
    on_exit_({.local_rank = local_rank,
              .rank = local_rank,
              .pid = 1000 + local_rank,
              .status = status,
              .stderr_lines = std::move(stderr_lines)});
  }

  void listen(OnExit on_exit, OnWarning /*on_warning*/, OnInfo /*on_info*/) override {
    on_exit_ = std::move(on_exit);
  }
  void start(const rendezvous::Round& /*round*/, int restart_count,
             std::function<void(const std::optional<StartFailure>&)> on_started) override {
    journal.push_back("start attempt " + std::to_string(restart_count));
    on_started_ = std::move(on_started);
  }
  void stop_starting() override {}
  void signal_all(int signal) override {
    journal.push_back(process::signal_name(signal) + " to all");
  }
  void kill_all() override { journal.push_back("kill all"); }
  void signal_each(int signal) override {
    journal.push_back(process::signal_name(signal) + " to each");
  }
  void signal_one(int local_rank, int signal) override {
    journal.push_back(process::signal_name(signal) + " to " + std::to_string(local_rank));
  }
  void report_ends() override {
    for (const agent::WorkerExit& exit : std::exchange(held_ends, {})) on_exit_(exit);
  }
  void abandon(int local_rank) override {
    journal.push_back("abandon " + std::to_string(local_rank));
    gone(local_rank);
  }
  std::vector<agent::RunningWorker> running() const override { return present; }
  std::vector<agent::RunningWorker> started() const override { return present; }
  void finish_output() override { journal.push_back("finish output"); }
  std::string log_path() const override { return ""; }
  agent::LogLoss log_loss(const std::string&) const override { return {}; }
  std::string console_loss() const override { return ""; }
  boost::asio::awaitable<void> consoles_written(MonoTime) override { co_return; }
  pid_t helper() const override { return 0; }
  boost::asio::awaitable<void> end_helper() override { co_return; }
  boost::asio::awaitable<void> remove_empty_log_dir() override { co_return; }

  void gone(int local_rank) {
    std::erase_if(present, [local_rank](const agent::RunningWorker& worker) {
      return worker.local_rank == local_rank;
    });
  }

 private:
  OnExit on_exit_;
  std::function<void(const std::optional<StartFailure>&)> on_started_;
};

}  // namespace ddprun::test
