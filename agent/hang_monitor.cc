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
#include <filesystem>
#include <system_error>
#include <utility>

#include "agent/log_dir.h"
#include "store/base/count.h"
#include "store/base/variant.h"
#include "store/clock.h"
#include "store/event.h"
#include "worker/process/decide/stack_text.h"
#include "worker/process/proc_files.h"
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

std::uint64_t size_of_logs(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const char* name : {"/stdout.log", "/stderr.log"}) {
    std::error_code error;
    std::uintmax_t size = std::filesystem::file_size(folder + name, error);
    if (!error) bytes += size;
  }
  return bytes;
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
                         process::IoThread& disk, HangMonitorConfig config, Workers& workers,
                         std::shared_ptr<spdlog::logger> logger,
                         std::function<void(const WorkerExit&)> on_exit,
                         std::function<void(const RunningWorker&)> on_stuck,
                         std::function<void()> before_stacks)
    : config_(std::move(config)),
      disk_(disk),
      workers_(workers),
      logger_(std::move(logger)),
      on_exit_(std::move(on_exit)),
      on_stuck_(std::move(on_stuck)),
      before_stacks_(std::move(before_stacks)),
      stacks_(reaper, disk),
      state_(config_.decide),
      timer_(executor),
      tasks_(executor) {
  if (config_.timer_file == nullptr) return;
  timers_.emplace(
      executor, *config_.timer_file,
      [this](const ExpiredTimer& expired) { timer_expired(expired); },
      [this](const std::string& warning) { logger_->warn("{}", warning); });
}

void HangMonitor::start(bool has_other_nodes) {
  ++starts_;
  blamed_.clear();
  views_.clear();
  is_showing_stacks_ = false;
  if (config_.decide.timeout == Duration::zero() && !timers_) return;
  is_watching_ = true;
  if (!std::exchange(has_watched_, true)) tasks_.spawn(watch());
  hang::event::Started started{.local_ranks = {}, .has_other_nodes = has_other_nodes};
  for (const RunningWorker& worker : workers_.running()) {
    started.local_ranks.insert(worker.local_rank);
    started.base_rank = worker.rank - worker.local_rank;
  }
  on(started);
}

void HangMonitor::workers_stop(bool is_asked) {
  if (is_asked) interrupt();
  if (!std::exchange(is_watching_, false)) return;
  if (timers_) timers_->clear();
  on(hang::event::Stopped{});
}

bool HangMonitor::take_exit(const WorkerExit& exit) {
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

HangJudgement HangMonitor::begin_failure(int local_rank) {
  HangJudgement judgement;
  if (auto found = blamed_.find(local_rank); found != blamed_.end()) {
    judgement.cause = found->second.cause;
    if (found->second.alive_at) judgement.silence = mono_now() - *found->second.alive_at;
  }
  is_showing_stacks_ = !judgement.cause.empty() && !has_python_stacks_;
  auto own = views_.find(local_rank);
  bool has_waited =
      !judgement.cause.empty() && own != views_.end() && own->second.activity.is_waiting == true;
  if (!has_waited) return judgement;
  judgement.wait = rendezvous::TimedOutWait{.in = own->second.activity.collective, .is_idle = true};
  for (const auto& [other, view] : views_) {
    if (other != local_rank) judgement.findings.push_back(finding_of(view, *judgement.wait));
  }
  return judgement;
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
  std::string path = exit.folder + "/stack.faulthandler";
  std::string call = "write " + path;
  auto written = std::make_shared<Result<void>>();
  disk_.run(
      std::move(call),
      [path = std::move(path), text = fmt::format("{}\n", fmt::join(begin, lines.end(), "\n")),
       written] { *written = write_file(path, text); },
      [logger = logger_, written] {
        if (!*written) logger->warn("a stack is not kept: {}", to_string(written->error()));
      });
}

std::set<pid_t> HangMonitor::interrupt() {
  ++interruptions_;
  return stacks_.interrupt();
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
    auto tick = hang::next_tick(state_, config_.decide);
    if (tick && *tick <= now) {
      on(hang::event::Tick{});
    } else if (state_.look_at && *state_.look_at <= now && !std::exchange(is_looking_, true)) {
      tasks_.spawn(look());
    }
  }
}

MonoTime HangMonitor::next_due() const {
  auto tick = hang::next_tick(state_, config_.decide);
  auto look = is_looking_ ? std::nullopt : state_.look_at;
  return std::min(tick.value_or(MonoTime::max()), look.value_or(MonoTime::max()));
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
              before_stacks_();
              tasks_.spawn(take_stacks(take.collection));
            },
            [this](const hang::action::Blame& blame) { blamed_[blame.local_rank] = blame; },
            [this](const hang::action::Signal& wanted) {
              workers_.signal_one(wanted.local_rank, wanted.signal);
            },
            [this](const hang::action::Kill& kill) {
              workers_.signal_one(kill.local_rank, SIGKILL);
            },
            [this](const hang::action::Abandon& stuck) { abandon(stuck.local_rank); },
            [](const hang::action::HoldBack&) {},  // take_exit() has done it
            [this](const hang::action::Release& wanted) { tasks_.spawn(release(wanted.first)); },
        },
        action);
  }
}

// While the disk stands still, nobody is judged: the workers may wait for it, too.
asio::awaitable<void> HangMonitor::look() {
  struct Place {
    int local_rank = 0;
    std::string folder;
  };
  std::vector<Place> places;
  for (const RunningWorker& worker : workers_.running())
    if (!worker.folder.empty()) places.push_back({worker.local_rank, worker.folder});
  const int number = starts_;
  auto traces = std::make_shared<std::map<int, Traces>>();
  if (!places.empty()) {
    std::string call = "look at the log files in " + places.front().folder +
                       (places.size() > 1 ? " and those of the other workers" : "");
    std::function<void()> work = [places = std::move(places), traces] {
      for (const Place& place : places) {
        (*traces)[place.local_rank] = {.log_bytes = size_of_logs(place.folder),
                                       .heartbeat_ns = touched_at(heartbeat_path(place.folder))};
      }
    };
    co_await disk_.run_and_wait(std::move(call), std::move(work));
  }
  is_looking_ = false;
  timer_.expires_at(next_due());
  if (number == starts_) on(hang::event::Looked{sample(*traces)});
}

std::vector<ActivitySample> HangMonitor::sample(const std::map<int, Traces>& traces) const {
  std::vector<ActivitySample> samples;
  for (const RunningWorker& worker : workers_.running()) {
    if (!state_.running.contains(worker.local_rank)) continue;
    process::ProcessStats stats = process::stats_of(worker.pid);
    auto found = traces.find(worker.local_rank);
    Traces of_worker = found == traces.end() ? Traces() : found->second;
    std::uint64_t piped_bytes = worker.output_bytes ? worker.output_bytes() : 0;
    samples.push_back({.local_rank = worker.local_rank,
                       .output_bytes = piped_bytes + of_worker.log_bytes,
                       .is_output_seen = worker.is_output_seen,
                       .cpu_time = stats.cpu_time,
                       .moved_bytes = stats.moved_bytes,
                       .heartbeat_ns = of_worker.heartbeat_ns,
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
  const int interruptions = interruptions_;
  const MonoTime until = mono_now() + config_.decide.stack_limit;
  auto tools = std::make_shared<std::vector<process::StackTool>>();
  std::string call = "look for py-spy, eu-stack and gdb";
  std::function<void()> work = [tools, search_path = config_.search_path] {
    *tools = process::stack_tools(search_path);
  };
  co_await disk_.run_and_wait(std::move(call), std::move(work));
  if (interruptions != interruptions_) co_return;
  has_python_stacks_ = has_python(*tools);
  const auto quick = process::quick_tools(*tools);
  std::map<int, process::Activity> activities;
  if (!quick.empty()) {
    co_await collect(quick, {}, until);
    activities = co_await read_stacks();
  }
  // Where that has said of each whether it waits, the others would only take time.
  const auto slow = process::slow_tools(*tools);
  if (!slow.empty() && interruptions == interruptions_) {
    std::set<int> known;
    for (const auto& [local_rank, activity] : activities)
      if (activity.is_waiting) known.insert(local_rank);
    co_await collect(slow, known, until);
  }
  activities = co_await read_stacks();
  hang::event::StacksTaken taken{
      .collection = collection, .waits = {}, .has_python = has_python_stacks_};
  views_.clear();
  for (const RunningWorker& worker : workers_.running()) {
    auto found = activities.find(worker.local_rank);
    if (found == activities.end()) continue;
    views_[worker.local_rank] = {.rank = worker.rank, .pid = worker.pid, .activity = found->second};
    const process::Activity& activity = found->second;
    if (activity.is_waiting) taken.waits[worker.local_rank] = *activity.is_waiting;
    if (!activity.place.empty()) taken.places[worker.local_rank] = activity.place;
  }
  on(taken);
}

asio::awaitable<void> HangMonitor::collect(std::vector<process::StackTool> tools,
                                           std::set<int> known, MonoTime until) {
  std::vector<process::StackTarget> targets;
  for (const RunningWorker& worker : workers_.running()) {
    if (!worker.folder.empty() && !known.contains(worker.local_rank))
      targets.push_back({worker.pid, stacks_path(worker.folder)});
  }
  if (targets.empty()) co_return;
  const Duration limit = std::max(until - mono_now(), Duration(1));
  logger_->warn("collecting the stacks of {} by {}, for at most {:.0f} s",
                count_of(targets.size(), "worker"), process::names_of(tools),
                std::chrono::duration<double>(limit).count());
  co_await stacks_.collect(std::move(tools), std::move(targets), config_.environment, limit);
}

asio::awaitable<std::map<int, process::Activity>> HangMonitor::read_stacks() {
  struct Place {
    std::string path;
    std::string doing;
  };
  std::map<int, Place> places;
  for (const RunningWorker& worker : workers_.running()) {
    if (!worker.folder.empty())
      places[worker.local_rank] = {stacks_path(worker.folder), process::doing_of(worker.pid)};
  }
  auto activities = std::make_shared<std::map<int, process::Activity>>();
  if (places.empty()) co_return *activities;
  std::string call = "read the stacks of the workers";
  std::function<void()> work = [places = std::move(places), activities] {
    constexpr std::size_t kMostBytes = 16 * 1024 * 1024;
    auto text_at = [](const std::string& path) {
      return process::end_of_regular_file(path, kMostBytes).value_or("");
    };
    for (const auto& [local_rank, place] : places) {
      const std::string native = text_at(place.path + ".gdb") + text_at(place.path + ".eu-stack");
      (*activities)[local_rank] =
          process::activity_of(native, text_at(place.path + ".py-spy"), place.doing);
    }
  };
  co_await disk_.run_and_wait(std::move(call), std::move(work));
  co_return *activities;
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
