// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "agent/workers.h"

namespace ddprun::test {

// Workers without processes: those in `present` run.  What is asked of them goes into `journal`.
class FakeWorkers : public agent::Workers {
 public:
  std::vector<std::string> journal;
  std::vector<agent::RunningWorker> present;

  void start(const rendezvous::Round& /*round*/, int restart_count,
             std::function<void(const std::optional<StartFailure>&)> on_started) override {
    journal.push_back("start attempt " + std::to_string(restart_count));
    on_started(std::nullopt);
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
  void abandon(int local_rank) override {
    journal.push_back("abandon " + std::to_string(local_rank));
    gone(local_rank);
  }
  std::vector<agent::RunningWorker> running() const override { return present; }
  std::vector<agent::RunningWorker> started() const override { return present; }
  void finish_output() override {}
  std::string log_path() const override { return ""; }
  const std::string& log_loss() const override { return log_loss_; }
  void remove_empty_log_dir() override {}

  void gone(int local_rank) {
    std::erase_if(present, [local_rank](const agent::RunningWorker& worker) {
      return worker.local_rank == local_rank;
    });
  }

 private:
  std::string log_loss_;
};

}  // namespace ddprun::test
