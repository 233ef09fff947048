// SPDX-License-Identifier: BSD-3-Clause
#include "agent/hang_monitor.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "store/clock.h"
#include "worker/process/process_stats.h"
#include "worker/process/text_file.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kAbortGrace = 5s;  // from SIGABRT to SIGKILL
constexpr auto kPollPeriod = 20ms;

std::int64_t touched_at(const std::string& path) {
  struct stat info = {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return 0;
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

asio::awaitable<void> wait(Duration duration) {
  asio::steady_timer timer(co_await asio::this_coro::executor, duration);
  co_await timer.async_wait(asio::use_awaitable);
}

std::string stacks_path(const std::string& folder) {
  return folder + "/stack";
}

}  // namespace

std::string heartbeat_path(const std::string& folder) {
  return folder.empty() ? "" : folder + "/heartbeat";
}

HangMonitor::HangMonitor(asio::any_io_executor executor, process::Reaper& reaper, HangConfig config,
                         std::shared_ptr<spdlog::logger> logger, std::function<void(int)> on_stuck,
                         std::function<void(int)> on_shown)
    : stacks_(reaper),
      config_(std::move(config)),
      logger_(std::move(logger)),
      on_stuck_(std::move(on_stuck)),
      on_shown_(std::move(on_shown)),
      activity_(config_.timeout),
      tasks_(std::move(executor), [](std::exception_ptr error) { std::rethrow_exception(error); }) {
}

void HangMonitor::start(std::vector<WatchedWorker> workers, bool has_other_nodes) {
  has_other_nodes_ = has_other_nodes;
  workers_.clear();
  causes_.clear();
  activity_.start();
  for (WatchedWorker& worker : workers) {
    int local_rank = worker.local_rank;
    workers_.emplace(local_rank, std::move(worker));
  }
  if (config_.timeout == Duration::zero() || std::exchange(is_watching_, true)) return;
  tasks_.spawn(watch());
}

bool HangMonitor::has_python_stacks() const {
  std::vector<process::StackTool> tools = process::stack_tools(config_.search_path);
  return std::ranges::any_of(
      tools, [](const process::StackTool& tool) { return tool.at(0).ends_with("py-spy"); });
}

std::string HangMonitor::cause_of(int local_rank) const {
  auto found = causes_.find(local_rank);
  return found == causes_.end() ? "" : found->second;
}

asio::awaitable<void> HangMonitor::stop() {
  tasks_.cancel();
  co_await tasks_.join();
}

asio::awaitable<void> HangMonitor::watch() {
  for (;;) {
    co_await wait(look_period(config_.timeout));
    auto verdict = activity_.look(sample(), mono_now());
    if (verdict) co_await end_hung(std::move(*verdict));
  }
}

std::vector<ActivitySample> HangMonitor::sample() const {
  std::vector<ActivitySample> samples;
  for (const auto& [local_rank, worker] : workers_) {
    process::ProcessStats stats = process::stats_of(worker.pid);
    samples.push_back({.local_rank = local_rank,
                       .output_bytes = worker.output_bytes ? worker.output_bytes() : 0,
                       .cpu_time = stats.cpu_time,
                       .heartbeat_ns = touched_at(heartbeat_path(worker.folder)),
                       .doing = std::move(stats.doing)});
  }
  return samples;
}

asio::awaitable<void> HangMonitor::end_hung(HangVerdict verdict) {
  for (int local_rank : verdict.silent) {
    const WatchedWorker& worker = workers_.at(local_rank);
    logger_->warn("rank {} (local rank {}, pid {}) shows no sign of life; it is {}", worker.rank,
                  local_rank, worker.pid, verdict.doing.at(local_rank));
  }
  auto begun = mono_now();
  co_await collect_all_stacks();
  verdict = judged_by_stacks(std::move(verdict));
  if (!verdict.is_clear && has_other_nodes_) {
    Duration for_stacks = mono_now() - begun;
    Duration grace = 2 * for_stacks + 2 * look_period(config_.timeout) + kAbortGrace + 1s;
    auto last = co_await silent_after(grace);
    if (!last) co_return;
    verdict = judged_by_stacks(std::move(*last));
  }
  auto hung = workers_.find(verdict.hung.front());
  if (hung == workers_.end()) co_return;  // it has ended, or a stop has begun, meanwhile
  causes_[hung->first] = describe(verdict);
  co_await kill_one(hung->first, SIGABRT);
}

// The verdict at the end of `grace`, which is the other nodes': an agent that knows which of its
// workers hangs ends that one meanwhile.  nullopt once the workers go on, or are being stopped.
asio::awaitable<std::optional<HangVerdict>> HangMonitor::silent_after(Duration grace) {
  logger_->warn(
      "it is not clear that one of them keeps the others waiting; {:.0f} s for the other "
      "nodes to find one",
      std::chrono::duration<double>(grace).count());
  auto end = mono_now() + grace;
  std::optional<HangVerdict> verdict;
  do {
    co_await wait(look_period(config_.timeout));
    verdict = activity_.look(sample(), mono_now());
  } while (verdict && mono_now() < end);
  co_return verdict;
}

void HangMonitor::end(int local_rank, int signal, std::string cause) {
  if (workers_.contains(local_rank) && !causes_.contains(local_rank))
    tasks_.spawn(end_one(local_rank, signal, std::move(cause)));
}

asio::awaitable<void> HangMonitor::end_one(int local_rank, int signal, std::string cause) {
  causes_[local_rank] = std::move(cause);
  int pid = workers_.at(local_rank).pid;
  co_await collect_all_stacks();
  auto worker = workers_.find(local_rank);
  if (worker == workers_.end() || worker->second.pid != pid) co_return;  // ended meanwhile
  co_await kill_one(local_rank, signal == SIGKILL ? SIGABRT : signal);
}

asio::awaitable<void> HangMonitor::collect_all_stacks() {
  std::vector<process::StackTarget> targets;
  for (const auto& [local_rank, worker] : workers_) {
    if (!worker.folder.empty()) targets.push_back({worker.pid, stacks_path(worker.folder)});
  }
  std::vector<process::StackTool> tools = process::stack_tools(config_.search_path);
  if (tools.empty() || targets.empty()) co_return;
  logger_->warn("collecting the stacks of all workers, for at most {} s",
                std::chrono::duration_cast<std::chrono::seconds>(config_.stack_limit).count());
  co_await stacks_.collect(std::move(tools), std::move(targets), config_.environment,
                           config_.stack_limit);
}

// Politely with `signal`, then by SIGKILL.
asio::awaitable<void> HangMonitor::kill_one(int local_rank, int signal) {
  int pid = workers_.at(local_rank).pid;
  auto is_still_there = [this, local_rank, pid] {
    auto worker = workers_.find(local_rank);
    return worker != workers_.end() && worker->second.pid == pid;
  };
  // All at once: the end of the first would wake the others, which would show something else.
  is_holding_ = signal == SIGABRT && !has_python_stacks();
  for (const auto& [other, worker] : workers_) {
    if (other != local_rank && !is_holding_) continue;
    ::kill(worker.pid, signal);
    ::kill(worker.pid, SIGCONT);  // a stopped process sees no other signal
  }
  auto begun = mono_now();
  auto lasts = [&](Duration limit) { return mono_now() - begun < limit; };
  while (lasts(kAbortGrace) && (is_still_there() || (is_holding_ && !workers_.empty())))
    co_await wait(kPollPeriod);
  if (is_still_there()) ::kill(pid, SIGKILL);
  while (lasts(kAbortGrace + config_.kill_limit) && is_still_there()) co_await wait(kPollPeriod);
  if (is_still_there()) on_stuck_(local_rank);
  if (std::exchange(is_holding_, false)) on_shown_(local_rank);
}

// Where some wait for their peers and some do not, the latter keep them waiting.
HangVerdict HangMonitor::judged_by_stacks(HangVerdict verdict) const {
  std::map<int, bool> waits;
  for (int local_rank : verdict.silent) {
    auto worker = workers_.find(local_rank);
    if (worker == workers_.end()) continue;
    for (const char* tool : {".gdb", ".eu-stack"}) {
      auto text = process::text_of_file(stacks_path(worker->second.folder) + tool);
      auto is_waiting = text ? process::waits_for_peers(*text) : std::nullopt;
      if (is_waiting) waits[local_rank] = *is_waiting;
    }
  }
  return without_waiting(std::move(verdict), waits);
}

}  // namespace ddprun::agent
