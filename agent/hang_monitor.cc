// SPDX-License-Identifier: BSD-3-Clause
#include "agent/hang_monitor.h"

#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "agent/log_dir.h"
#include "store/base/variant.h"
#include "store/clock.h"
#include "store/event.h"
#include "worker/process/process_stats.h"
#include "worker/process/sweep.h"
#include "worker/process/text_file.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

std::int64_t touched_at(const std::string& path) {
  struct stat info = {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return 0;
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

std::string stacks_path(const std::string& folder) {
  return folder + "/stack";
}

bool has_python(const std::vector<process::StackTool>& tools) {
  return std::ranges::any_of(
      tools, [](const process::StackTool& tool) { return tool.at(0).ends_with("py-spy"); });
}

}  // namespace

std::string heartbeat_path(const std::string& folder) {
  return folder.empty() ? "" : folder + "/heartbeat";
}

HangMonitor::HangMonitor(asio::any_io_executor executor, process::Reaper& reaper,
                         HangMonitorConfig config, Workers& workers,
                         std::shared_ptr<spdlog::logger> logger,
                         std::function<void(const WorkerExit&)> on_exit,
                         std::function<void(const RunningWorker&)> on_stuck)
    : config_(std::move(config)),
      workers_(workers),
      logger_(std::move(logger)),
      on_exit_(std::move(on_exit)),
      on_stuck_(std::move(on_stuck)),
      stacks_(reaper),
      state_(config_.decide),
      timer_(executor),
      tasks_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }) {
  if (config_.timer_file == nullptr) return;
  timers_.emplace(
      executor, *config_.timer_file,
      [this](const ExpiredTimer& expired) { timer_expired(expired); },
      [this](const std::string& warning) { logger_->warn("{}", warning); });
}

void HangMonitor::start(bool has_other_nodes) {
  causes_.clear();
  is_showing_stacks_ = false;
  if (config_.decide.timeout == Duration::zero() && !timers_) return;
  is_watching_ = true;
  if (!std::exchange(has_watched_, true)) tasks_.spawn(watch());
  hang::event::Started started{.local_ranks = {}, .has_other_nodes = has_other_nodes};
  for (const RunningWorker& worker : workers_.running())
    started.local_ranks.insert(worker.local_rank);
  on(started);
}

void HangMonitor::workers_stop(bool is_asked) {
  if (is_asked) stacks_.interrupt();
  if (!std::exchange(is_watching_, false)) return;
  if (timers_) timers_->clear();
  on(hang::event::Stopped{});
}

bool HangMonitor::hold_back(const WorkerExit& exit) {
  auto actions =
      hang::step(state_, hang::event::Exited{exit.local_rank}, mono_now(), config_.decide);
  // Those that are about to be released go first.
  bool is_held = !held_.empty() || std::ranges::any_of(actions, [](const hang::Action& action) {
    return std::holds_alternative<hang::action::HoldBack>(action);
  });
  if (is_held) held_.push_back(exit);
  perform(actions);
  return is_held;
}

std::string HangMonitor::judge_failure(int local_rank) {
  auto found = causes_.find(local_rank);
  std::string cause = found == causes_.end() ? "" : found->second;
  is_showing_stacks_ = !cause.empty() && !has_python_stacks_;
  return cause;
}

void HangMonitor::worker_ended(const WorkerExit& exit) {
  if (is_showing_stacks_) keep_stack(exit);
}

void HangMonitor::keep_stack(const WorkerExit& exit) {
  if (exit.folder.empty() || exit.status.signal != SIGABRT) return;
  const std::vector<std::string>& lines = exit.stderr_lines;
  auto begin = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("Fatal Python error"); });
  if (begin == lines.end()) return;
  Result<void> written = write_file(exit.folder + "/stack.faulthandler",
                                    fmt::format("{}\n", fmt::join(begin, lines.end(), "\n")));
  if (!written) logger_->warn("a stack is not kept: {}", to_string(written.error()));
}

asio::awaitable<void> HangMonitor::stop() {
  tasks_.cancel();
  co_await tasks_.join();
}

asio::awaitable<void> HangMonitor::watch() {
  for (;;) {
    timer_.expires_at(next_due());
    co_await store::wait_for(timer_);
    MonoTime now = mono_now();
    auto tick = hang::next_tick(state_);
    if (tick && *tick <= now) {
      on(hang::event::Tick{});
    } else if (state_.look_at && *state_.look_at <= now) {
      on(hang::event::Looked{sample()});
    }
  }
}

MonoTime HangMonitor::next_due() const {
  auto tick = hang::next_tick(state_);
  return std::min(tick.value_or(MonoTime::max()), state_.look_at.value_or(MonoTime::max()));
}

void HangMonitor::on(const hang::Event& event) {
  perform(hang::step(state_, event, mono_now(), config_.decide));
}

void HangMonitor::perform(const std::vector<hang::Action>& actions) {
  timer_.expires_at(next_due());
  for (const hang::Action& action : actions) {
    std::visit(
        Overloaded{
            [this](const hang::action::NameSilent& silent) { name_silent(silent.verdict); },
            [this](const hang::action::LeaveToOthers& leave) {
              logger_->warn(
                  "it is not clear that one of them keeps the others waiting; {:.0f} s for the "
                  "other nodes to find one",
                  std::chrono::duration<double>(leave.grace).count());
            },
            [this](const hang::action::TakeStacks& take) {
              tasks_.spawn(take_stacks(take.collection));
            },
            [this](const hang::action::Blame& blame) { causes_[blame.local_rank] = blame.cause; },
            [this](const hang::action::Signal& wanted) {
              workers_.signal_one(wanted.local_rank, wanted.signal);
            },
            [this](const hang::action::Kill& kill) {
              workers_.signal_one(kill.local_rank, SIGKILL);
            },
            [this](const hang::action::Abandon& stuck) { abandon(stuck.local_rank); },
            [](const hang::action::HoldBack&) {},  // hold_back() has done it
            [this](const hang::action::Release& wanted) { tasks_.spawn(release(wanted.first)); },
        },
        action);
  }
}

std::vector<ActivitySample> HangMonitor::sample() const {
  std::vector<ActivitySample> samples;
  for (const RunningWorker& worker : workers_.running()) {
    if (!state_.running.contains(worker.local_rank)) continue;
    process::ProcessStats stats = process::stats_of(worker.pid);
    samples.push_back({.local_rank = worker.local_rank,
                       .output_bytes = worker.output_bytes ? worker.output_bytes() : 0,
                       .cpu_time = stats.cpu_time,
                       .moved_bytes = stats.moved_bytes,
                       .heartbeat_ns = touched_at(heartbeat_path(worker.folder)),
                       .doing = std::move(stats.doing)});
  }
  return samples;
}

void HangMonitor::name_silent(const HangVerdict& verdict) const {
  for (const RunningWorker& worker : workers_.running()) {
    auto doing = verdict.doing.find(worker.local_rank);
    if (doing == verdict.doing.end()) continue;
    logger_->warn("rank {} (local rank {}, pid {}) shows no sign of life; it is {}", worker.rank,
                  worker.local_rank, worker.pid, doing->second);
  }
}

asio::awaitable<void> HangMonitor::take_stacks(std::uint64_t collection) {
  std::vector<process::StackTarget> targets;
  for (const RunningWorker& worker : workers_.running()) {
    if (!worker.folder.empty()) targets.push_back({worker.pid, stacks_path(worker.folder)});
  }
  std::vector<process::StackTool> tools = process::stack_tools(config_.search_path);
  has_python_stacks_ = has_python(tools);
  if (!tools.empty() && !targets.empty()) {
    logger_->warn("collecting the stacks of all workers, for at most {} s",
                  std::chrono::duration_cast<std::chrono::seconds>(config_.stack_limit).count());
    co_await stacks_.collect(std::move(tools), std::move(targets), config_.environment,
                             config_.stack_limit);
  }
  on(hang::event::StacksTaken{
      .collection = collection, .waits = waits_by_stacks(), .has_python = has_python_stacks_});
}

std::map<int, bool> HangMonitor::waits_by_stacks() const {
  std::map<int, bool> waits;
  for (const RunningWorker& worker : workers_.running()) {
    if (worker.folder.empty()) continue;
    for (const char* tool : {".gdb", ".eu-stack"}) {
      auto text = process::text_of_file(stacks_path(worker.folder) + tool);
      auto is_waiting = text ? process::waits_for_peers(*text) : std::nullopt;
      if (is_waiting) waits[worker.local_rank] = *is_waiting;
    }
  }
  return waits;
}

void HangMonitor::abandon(int local_rank) {
  for (const RunningWorker& worker : workers_.running()) {
    if (worker.local_rank == local_rank) on_stuck_(worker);
  }
}

// In a turn of the loop of its own: the agent may be in the middle of another event.
asio::awaitable<void> HangMonitor::release(int first) {
  co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  auto held = std::exchange(held_, {});
  std::ranges::stable_partition(
      held, [first](const WorkerExit& exit) { return exit.local_rank == first; });
  for (const WorkerExit& exit : held) on_exit_(exit);
}

// A timer belongs to the worker that set it, or to that worker's parent process.
void HangMonitor::timer_expired(const ExpiredTimer& expired) {
  for (const RunningWorker& worker : workers_.running()) {
    if (!state_.running.contains(worker.local_rank)) continue;
    auto is_it = [&](const process::Leftover& child) { return child.pid == expired.pid; };
    if (worker.pid != expired.pid &&
        std::ranges::none_of(process::descendants_of(worker.pid), is_it))
      continue;
    std::string what = fmt::format("hung: its timer '{}' has expired", expired.scope);
    logger_->warn("rank {} (local rank {}, pid {}) {}{}", worker.rank, worker.local_rank,
                  worker.pid, what, expired.signal > 0 ? "" : ", without a signal: it goes on");
    if (expired.signal > 0)
      on(hang::event::TimerExpired{
          .local_rank = worker.local_rank, .signal = expired.signal, .cause = what});
  }
}

}  // namespace ddprun::agent
