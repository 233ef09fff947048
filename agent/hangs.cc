// SPDX-License-Identifier: BSD-3-Clause
#include "agent/hangs.h"

#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agent/log_dir.h"
#include "worker/process/spawn.h"
#include "worker/process/sweep.h"

namespace ddprun::agent {
namespace {

HangConfig hang_config(const AgentConfig& config) {
  const auto& environment = config.workers.environment;
  return {.timeout = config.hang_timeout,
          .environment = process::to_assignments(environment),
          .search_path = process::search_path_of(environment)};
}

}  // namespace

Hangs::Hangs(boost::asio::any_io_executor executor, process::Reaper& reaper,
             const AgentConfig& config, const WorkerGroup& workers,
             std::shared_ptr<spdlog::logger> logger, std::function<void(const WorkerExit&)> on_exit,
             std::function<void(const RunningWorker&)> on_stuck)
    : has_timeout_(config.hang_timeout != Duration::zero()),
      workers_(workers),
      logger_(std::move(logger)),
      on_exit_(std::move(on_exit)),
      on_stuck_(std::move(on_stuck)),
      watch_(
          executor, reaper, hang_config(config), logger_,
          [this](int local_rank) { abandon(local_rank); },
          [this](int local_rank) { release_held(local_rank); }) {
  if (config.timer_file == nullptr) return;
  timers_.emplace(
      executor, *config.timer_file, [this](const ExpiredTimer& expired) { timer_expired(expired); },
      [this](const std::string& warning) { logger_->warn("{}", warning); });
}

void Hangs::start(bool has_other_nodes) {
  is_running_ = true;
  is_showing_stacks_ = false;
  if (!has_timeout_ && !timers_) return;
  std::vector<WatchedWorker> watched;
  for (RunningWorker& worker : workers_.running()) {
    watched.push_back({.local_rank = worker.local_rank,
                       .rank = worker.rank,
                       .pid = worker.pid,
                       .folder = std::move(worker.folder),
                       .output_bytes = std::move(worker.output_bytes)});
  }
  watch_.start(std::move(watched), has_other_nodes);
}

void Hangs::workers_stop(bool is_asked) {
  if (std::exchange(is_running_, false) && timers_) timers_->clear();
  if (is_asked) watch_.interrupt();
  watch_.forget_all();
}

bool Hangs::hold_back(const WorkerExit& exit) {
  if (!watch_.is_holding()) return false;
  watch_.forget(exit.local_rank);
  held_.push_back(exit);
  return true;
}

void Hangs::release_held(int hung_rank) {
  auto held = std::exchange(held_, {});
  std::ranges::stable_partition(
      held, [hung_rank](const WorkerExit& exit) { return exit.local_rank == hung_rank; });
  for (const WorkerExit& exit : held) on_exit_(exit);
}

std::string Hangs::judge_failure(int local_rank) {
  std::string cause = watch_.cause_of(local_rank);
  watch_.forget_all();
  is_showing_stacks_ = !cause.empty() && !watch_.has_python_stacks();
  return cause;
}

void Hangs::worker_ended(const WorkerExit& exit) {
  watch_.forget(exit.local_rank);
  if (is_showing_stacks_) keep_stack(exit);
}

void Hangs::keep_stack(const WorkerExit& exit) {
  if (exit.folder.empty() || exit.status.signal != SIGABRT) return;
  const std::vector<std::string>& lines = exit.stderr_lines;
  auto begin = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("Fatal Python error"); });
  if (begin == lines.end()) return;
  Result<void> written = write_file(exit.folder + "/stack.faulthandler",
                                    fmt::format("{}\n", fmt::join(begin, lines.end(), "\n")));
  if (!written) logger_->warn("a stack is not kept: {}", to_string(written.error()));
}

void Hangs::abandon(int local_rank) {
  for (const RunningWorker& worker : workers_.running()) {
    if (worker.local_rank == local_rank) on_stuck_(worker);
  }
}

// A timer belongs to the worker that set it, or whose child did.  Anybody else's is nobody's.
void Hangs::timer_expired(const ExpiredTimer& expired) {
  if (!is_running_) return;
  for (const RunningWorker& worker : workers_.running()) {
    auto is_it = [&](const process::Leftover& child) { return child.pid == expired.pid; };
    if (worker.pid != expired.pid &&
        std::ranges::none_of(process::descendants_of(worker.pid), is_it))
      continue;
    std::string what = fmt::format("hung: its timer '{}' has expired", expired.scope);
    logger_->warn("rank {} (local rank {}, pid {}) {}{}", worker.rank, worker.local_rank,
                  worker.pid, what, expired.signal > 0 ? "" : ", without a signal: it goes on");
    if (expired.signal > 0) watch_.end(worker.local_rank, expired.signal, what);
  }
}

}  // namespace ddprun::agent
