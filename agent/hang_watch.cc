// SPDX-License-Identifier: BSD-3-Clause
#include "agent/hang_watch.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <fstream>
#include <iterator>
#include <utility>

#include "worker/process/life.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kAbortGrace = 5s;  // from SIGABRT to SIGKILL

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

HangWatch::HangWatch(asio::any_io_executor executor, process::Reaper& reaper, HangConfig config,
                     std::shared_ptr<spdlog::logger> logger, std::function<void(int)> on_stuck)
    : reaper_(reaper),
      config_(std::move(config)),
      logger_(std::move(logger)),
      on_stuck_(std::move(on_stuck)),
      detector_(config_.timeout),
      tasks_(std::move(executor), [](std::exception_ptr error) { std::rethrow_exception(error); }) {
}

void HangWatch::start(std::vector<WatchedWorker> workers) {
  workers_.clear();
  causes_.clear();
  detector_.start();
  if (config_.timeout == Duration::zero()) return;
  for (WatchedWorker& worker : workers) {
    int local_rank = worker.local_rank;
    workers_.emplace(local_rank, std::move(worker));
  }
  if (!std::exchange(is_watching_, true)) tasks_.spawn(watch());
}

std::string HangWatch::cause_of(int local_rank) const {
  auto found = causes_.find(local_rank);
  return found == causes_.end() ? "" : found->second;
}

asio::awaitable<void> HangWatch::stop() {
  tasks_.cancel();
  co_await tasks_.join();
}

asio::awaitable<void> HangWatch::watch() {
  for (;;) {
    co_await wait(look_period(config_.timeout));
    auto verdict = detector_.look(sample(), std::chrono::steady_clock::now());
    if (verdict) co_await end_hung(std::move(*verdict));
  }
}

std::vector<LifeSample> HangWatch::sample() const {
  std::vector<LifeSample> samples;
  for (const auto& [local_rank, worker] : workers_) {
    process::ProcessLife life = process::life_of(worker.pid);
    samples.push_back({.local_rank = local_rank,
                       .output_bytes = worker.output_bytes ? worker.output_bytes() : 0,
                       .cpu_time = life.cpu_time,
                       .heartbeat_ns = touched_at(heartbeat_path(worker.folder)),
                       .doing = std::move(life.doing)});
  }
  return samples;
}

asio::awaitable<void> HangWatch::end_hung(HangVerdict verdict) {
  for (int local_rank : verdict.silent) {
    const WatchedWorker& worker = workers_.at(local_rank);
    logger_->warn("rank {} (local rank {}, pid {}) shows no sign of life; it is {}", worker.rank,
                  local_rank, worker.pid, verdict.doing.at(local_rank));
  }
  std::vector<process::StackTarget> targets;
  for (const auto& [local_rank, worker] : workers_) {
    if (!worker.folder.empty()) targets.push_back({worker.pid, stacks_path(worker.folder)});
  }
  std::vector<process::StackTool> tools = process::stack_tools(config_.search_path);
  if (!tools.empty() && !targets.empty()) {
    logger_->warn("collecting the stacks of all workers, for at most {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(config_.stack_limit).count());
    co_await process::collect_stacks(reaper_, std::move(tools), std::move(targets),
                                     config_.environment, config_.stack_limit);
    verdict = judged_by_stacks(std::move(verdict));
  }
  auto hung = workers_.find(verdict.hung.front());
  if (hung == workers_.end()) co_return;  // it has ended, or a stop has begun, meanwhile
  int local_rank = hung->first;
  int pid = hung->second.pid;
  causes_[local_rank] = describe(verdict);
  ::kill(pid, SIGABRT);
  ::kill(pid, SIGCONT);  // a stopped process sees no other signal
  co_await wait(kAbortGrace);
  auto is_still_there = [this, local_rank, pid] {
    auto worker = workers_.find(local_rank);
    return worker != workers_.end() && worker->second.pid == pid;
  };
  if (!is_still_there()) co_return;
  ::kill(pid, SIGKILL);
  co_await wait(config_.kill_limit);
  if (is_still_there()) on_stuck_(local_rank);
}

// Where some wait for their peers and some do not, the latter keep them waiting.
HangVerdict HangWatch::judged_by_stacks(HangVerdict verdict) const {
  std::vector<int> waiting;
  for (int local_rank : verdict.silent) {
    auto worker = workers_.find(local_rank);
    if (worker == workers_.end()) continue;
    for (const char* tool : {".gdb", ".eu-stack"}) {
      std::ifstream file(stacks_path(worker->second.folder) + tool, std::ios::binary);
      std::string text((std::istreambuf_iterator<char>(file)), {});
      if (process::waits_for_peers(text)) waiting.push_back(local_rank);
    }
  }
  return without_waiting(std::move(verdict), waiting);
}

}  // namespace ddprun::agent
