// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_group.h"

#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <filesystem>
#include <sstream>
#include <utility>

#include "agent/decide/macros.h"
#include "agent/decide/start_failure.h"
#include "agent/hang_monitor.h"
#include "store/base/count.h"
#include "worker/env.h"
#include "worker/process/cgroup.h"
#include "worker/process/spawn.h"
#include "worker/process/text_file.h"

namespace ddprun::agent {

namespace asio = boost::asio;

struct WorkerGroup::Worker {
  int local_rank = 0;
  int rank = 0;
  int pid = -1;
  std::string error_file;
  bool has_ended = false;  // or could not be started, or is abandoned
  WorkerStreams streams;
  process::CgroupLeaf cgroup;

  // Of a worker that may not be its program yet.
  std::optional<asio::posix::stream_descriptor> exec_report;  // nullopt: it is known
  std::string exec_context;
};

// The start of an attempt, until it is known of each worker whether it runs.
struct WorkerGroup::Start {
  explicit Start(const asio::any_io_executor& executor) : slow(executor) {}

  rendezvous::Round round;
  std::function<void(const std::optional<StartFailure>&)> on_started;
  asio::steady_timer slow;   // for the warning
  MonoTime exec_began{};     // when the last worker was forked
  bool has_files = false;    // else the disk is still making them
  bool is_stopping = false;  // by stop_starting()
  bool is_slow_told = false;
  int unsettled = 0;    // workers that were forked, and of which it is not known whether they run
  int not_started = 0;  // could not be forked, or not become their program
  std::optional<StartFailure> failure;
  int failed_local_rank = 0;      // its worker
  std::vector<WorkerExit> exits;  // held back until on_started has been called
};

namespace {

// "2.0 s".
std::string in_seconds(Duration duration) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

std::string of_local_rank(int local_rank, const Error& error) {
  return "local rank " + std::to_string(local_rank) + ": " + to_string(error);
}

worker::WorkerEnv worker_env(const WorkerGroupConfig& config, const rendezvous::Round& round,
                             int restart_count, int local_rank) {
  return {.rank = round.ranks.base_rank + local_rank,
          .world_size = round.ranks.world_size,
          .local_rank = local_rank,
          .local_world_size = config.local_world_size,
          .group_rank = round.ranks.group_rank,
          .group_world_size = round.ranks.group_world_size,
          .role_rank = round.ranks.role_base_rank + local_rank,
          .role_world_size = round.ranks.role_world_size,
          .role = config.role,
          .master = round.master,
          .use_agent_store = true,
          .restart_count = restart_count,
          .round = static_cast<int>(round.number),
          .max_restarts = round.max_restarts,
          .run_id = config.run_id,
          .error_file = "",
          .job_id = config.job_id,
          .requeue_count = config.requeue_count,
          .stop_file = stop_file(config)};
}

std::vector<std::string> environment_of(const WorkerGroupConfig& config,
                                        const WorkerPlacement& placement,
                                        const worker::WorkerEnv& env) {
  auto environment = config.environment;
  worker::Lookup inherited = [&](std::string_view name) -> std::optional<std::string> {
    auto found = config.environment.find(name);
    if (found == config.environment.end()) return std::nullopt;
    return found->second;
  };
  for (auto& [name, value] : worker::to_variables(env, inherited)) environment[name] = value;
  for (const auto& [name, value] : placement.environment) environment[name] = value;
  return process::to_assignments(environment);
}

worker::ErrorReport read_error_file(const std::string& path) {
  constexpr std::size_t kMostBytes = 1024 * 1024;
  return worker::parse_error_file(process::text_of_regular_file(path, kMostBytes).value_or(""))
      .value_or(worker::ErrorReport{});
}

// The last lines of a file, of its last 64 KiB.
std::vector<std::string> last_lines(const std::string& path, std::size_t count) {
  constexpr std::size_t kTailBytes = 64 * 1024;
  std::istringstream text(process::end_of_regular_file(path, kTailBytes).value_or(""));
  std::deque<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > count) lines.pop_front();
  }
  return {lines.begin(), lines.end()};
}

std::uint64_t size_of_logs(const std::string& folder) {
  std::uint64_t bytes = 0;
  if (folder.empty()) return bytes;
  for (const char* name : {"/stdout.log", "/stderr.log"}) {
    std::error_code error;
    std::uintmax_t size = std::filesystem::file_size(folder + name, error);
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace

std::string stop_file(const WorkerGroupConfig& config) {
  return config.log_dir ? config.log_dir->path() + "/stop_reason" : "";
}

WorkerGroup::WorkerGroup(boost::asio::any_io_executor executor, process::Reaper& reaper,
                         Consoles consoles, process::IoThread& disk, WorkerGroupConfig config)
    : executor_(std::move(executor)),
      reaper_(reaper),
      consoles_(consoles),
      disk_(disk),
      config_(std::move(config)) {}

WorkerGroup::~WorkerGroup() = default;

void WorkerGroup::listen(OnExit on_exit, OnWarning on_warning) {
  on_exit_ = std::move(on_exit);
  on_warning_ = std::move(on_warning);
}

void WorkerGroup::start(const rendezvous::Round& round, int restart_count,
                        std::function<void(const std::optional<StartFailure>&)> on_started) {
  workers_.clear();
  ++starts_;
  restart_count_ = restart_count;
  late_attempt_.clear();
  start_ = std::make_unique<Start>(executor_);
  start_->round = round;
  start_->on_started = std::move(on_started);
  AttemptFilesSpec spec = attempt_files_spec(config_, restart_count);
  auto files = std::make_shared<Result<AttemptFiles>>(AttemptFiles{});
  auto go_on = [this, files, number = starts_, alive = std::weak_ptr(alive_)] {
    if (alive.expired() || number != starts_ || !start_) return;  // stopped meanwhile
    start_->has_files = true;
    if (*files) return begin_all(std::move(**files));
    fail_start(0, to_string(files->error()), kExitInfrastructure);
    start_->not_started = config_.local_world_size;
    end_start_if_settled();
  };
  if (!spec.log_dir) {
    *files = make_attempt_files(spec);
    return go_on();
  }
  std::string call = "make the log files in " + spec.log_dir->path();
  disk_.run(
      std::move(call), [spec = std::move(spec), files] { *files = make_attempt_files(spec); },
      go_on);
}

void WorkerGroup::begin_all(AttemptFiles files) {
  AttemptOutput output(executor_, consoles_, disk_, config_, std::move(files),
                       [this, alive = std::weak_ptr(alive_)](const Error& error) {
                         if (!alive.expired()) output_lost(error);
                       });
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    auto begun = begin_one(output, worker_env(config_, start_->round, restart_count_, local_rank));
    if (begun) continue;
    fail_start(local_rank, of_local_rank(local_rank, begun.error()), kExitInfrastructure);
    start_->not_started = config_.local_world_size - local_rank;
    break;
  }
  start_->exec_began = std::chrono::steady_clock::now();
  report_slow_start();
  end_start_if_settled();
}

Result<void> WorkerGroup::begin_one(AttemptOutput& output, worker::WorkerEnv env) {
  auto streams = output.open_worker(env);
  if (!streams) return streams.error();
  if (!streams->folder.empty()) {
    env.error_file = streams->folder + "/error.json";
  } else if (config_.log_dir) {
    env.error_file = config_.log_dir->loose_error_file(starts_, env.local_rank);
  }

  process::ProcessSpec spec;
  for (const std::string& argument : config_.command) {
    spec.argv.push_back(substitute(argument, {{"local_rank", std::to_string(env.local_rank)}}));
  }
  if (config_.has_heartbeat && !streams->folder.empty())
    config_.environment[kHeartbeatVariable] = heartbeat_path(streams->folder);
  const WorkerPlacement& placement =
      config_.placements.at(static_cast<std::size_t>(env.local_rank));
  spec.environment = environment_of(config_, placement, env);
  spec.cpus = placement.cpus;
  spec.stdout_fd = streams->stdout_fd;
  spec.stderr_fd = streams->stderr_fd;

  process::CgroupLeaf cgroup;
  if (!config_.cgroup_base.empty()) {
    // One of the round before may still be there, with a process that nothing ends.
    auto made = process::CgroupLeaf::create(config_.cgroup_base, std::to_string(cgroups_made_++));
    if (made) cgroup = std::move(*made);
    spec.cgroup = cgroup.path();
  }
  auto process = process::begin_spawn(spec);
  if (!process) return process.error();
  streams->worker_has_them();
  auto worker = std::make_shared<Worker>();
  worker->local_rank = env.local_rank;
  worker->rank = env.rank;
  worker->pid = process->process.pid;
  worker->error_file = env.error_file;
  worker->streams = std::move(*streams);
  worker->cgroup = std::move(cgroup);
  worker->exec_report.emplace(executor_, process->report.release());
  worker->exec_context = std::move(process->context);
  workers_.push_back(worker);
  ++start_->unsettled;
  watch(worker, std::move(process->process));
  return {};
}

void WorkerGroup::watch(const std::shared_ptr<Worker>& worker, process::Process process) {
  std::weak_ptr<Worker> watched = worker;
  worker->exec_report->async_wait(asio::posix::descriptor_base::wait_read,
                                  [this, watched](boost::system::error_code error) {
                                    auto settled = watched.lock();
                                    if (error || !settled) return;
                                    settle(*settled);
                                    end_start_if_settled();
                                  });
  reaper_.watch(std::move(process), [this, watched](process::ExitStatus status) {
    if (auto gone = watched.lock()) ended(*gone, status);
  });
}

// It is known whether the worker's program runs.
void WorkerGroup::settle(Worker& worker) {
  if (!worker.exec_report) return;
  Fd report(worker.exec_report->release());
  worker.exec_report.reset();
  Result<void> started = process::report_of(report, worker.exec_context);
  if (!start_) return;  // abandoned
  --start_->unsettled;
  if (started) return;
  worker.has_ended = true;
  ++start_->not_started;
  fail_start(worker.local_rank, of_local_rank(worker.local_rank, started.error()),
             exit_code_of_start(started.error()));
}

// Keeps the reason of the lowest local rank; one that is the agent's own goes before.
void WorkerGroup::fail_start(int local_rank, std::string why, int exit_code) {
  StartFailure failure{
      .started = config_.local_world_size - 1, .why = std::move(why), .exit_code = exit_code};
  if (start_->is_stopping) return start_->on_started(failure);
  bool is_own = start_->failure && start_->failure->exit_code == kExitInfrastructure;
  if (is_own || (start_->failure && start_->failed_local_rank < local_rank)) return;
  start_->failure = std::move(failure);
  start_->failed_local_rank = local_rank;
}

void WorkerGroup::end_start_if_settled() {
  if (!start_ || !start_->has_files || start_->unsettled > 0) return;
  std::unique_ptr<Start> start = std::move(start_);
  if (start->is_slow_told) {
    Duration lasted = std::chrono::steady_clock::now() - start->exec_began;
    on_warning_("'start " + config_.command.at(0) + "' stood still for " + in_seconds(lasted));
  }
  if (start->is_stopping) return;
  if (start->failure) start->failure->started = config_.local_world_size - start->not_started;
  start->on_started(start->failure);
  for (const WorkerExit& exit : start->exits) on_exit_(exit);
}

void WorkerGroup::stop_starting() {
  if (!start_ || start_->is_stopping) return;
  if (!start_->has_files) {  // no worker will come of it
    std::unique_ptr<Start> start = std::move(start_);
    asio::post(
        executor_, [on_started = std::move(start->on_started), alive = std::weak_ptr(alive_)] {
          if (alive.expired()) return;
          on_started(StartFailure{.started = 0, .why = "stopped before the workers were started"});
        });
    return;
  }
  start_->is_stopping = true;
  asio::post(executor_, [this, exits = std::move(start_->exits), alive = std::weak_ptr(alive_)] {
    for (const WorkerExit& exit : exits) {
      if (!alive.expired()) on_exit_(exit);
    }
  });
}

// An exec that takes long: Python on a slow shared disk, say.
void WorkerGroup::report_slow_start() {
  start_->slow.expires_at(start_->exec_began + process::IoThread::kStall);
  start_->slow.async_wait([this, number = starts_,
                           alive = std::weak_ptr(alive_)](boost::system::error_code error) {
    if (error || alive.expired() || number != starts_ || !start_) return;
    start_->is_slow_told = true;
    Duration lasted = std::chrono::steady_clock::now() - start_->exec_began;
    on_warning_("'start " + config_.command.at(0) + "' has stood still for " + in_seconds(lasted) +
                " for " + count_of(start_->unsettled, "worker") + "; the run goes on meanwhile");
  });
}

void WorkerGroup::ended(Worker& worker, process::ExitStatus status) {
  settle(worker);
  if (!std::exchange(worker.has_ended, true)) {
    keep_error_file(worker);
    WorkerExit exit{.local_rank = worker.local_rank,
                    .rank = worker.rank,
                    .pid = worker.pid,
                    .status = status,
                    .folder = worker.streams.folder,
                    .cgroup = worker.cgroup.path()};
    if (!status.is_success()) read_last_output(worker, exit);
    if (start_ && !start_->is_stopping) {
      start_->exits.push_back(std::move(exit));
    } else {
      on_exit_(exit);
    }
  }
  end_start_if_settled();
}

// One line for the run: a full disk refuses every worker's.
void WorkerGroup::output_lost(const Error& error) {
  if (!log_loss_.empty()) return;
  log_loss_ = to_string(error);
  on_warning_("log files miss lines from here on, which are on the console only: " + log_loss_);
}

void WorkerGroup::signal_all(int signal) {
  for (const auto& worker : workers_) {
    if (worker->has_ended) continue;
    // One that was forked just now may not lead its group yet.
    if (::kill(-worker->pid, signal) != 0) ::kill(worker->pid, signal);
  }
}

void WorkerGroup::kill_all() {
  signal_all(SIGKILL);
  for (const auto& worker : workers_) worker->cgroup.kill();
}

void WorkerGroup::signal_each(int signal) {
  for (const auto& worker : workers_) {
    if (!worker->has_ended) ::kill(worker->pid, signal);
  }
}

void WorkerGroup::signal_one(int local_rank, int signal) {
  for (const auto& worker : workers_) {
    if (worker->local_rank != local_rank || worker->has_ended) continue;
    ::kill(worker->pid, signal);
    ::kill(worker->pid, SIGCONT);  // a stopped process sees no other signal
  }
}

void WorkerGroup::abandon(int local_rank) {
  for (const auto& worker : workers_) {
    if (worker->local_rank == local_rank) worker->has_ended = true;
  }
  start_.reset();
}

void WorkerGroup::finish_output() {
  for (const auto& worker : workers_) {
    worker->streams.finish();
    worker->cgroup = {};
  }
}

// Into the worker's own folder, which is made for it.  Where that fails it stays where it is.
void WorkerGroup::keep_error_file(Worker& worker) {
  bool is_loose = worker.streams.folder.empty() && !worker.error_file.empty();
  if (!is_loose || ::access(worker.error_file.c_str(), F_OK) != 0) return;
  if (late_attempt_.empty()) {
    auto attempt = config_.log_dir->make_attempt(restart_count_);
    if (!attempt) return;
    late_attempt_ = *attempt;
  }
  auto folder = LogDir::make_worker_folder(late_attempt_, worker.local_rank);
  if (!folder) return;
  std::string kept = *folder + "/error.json";
  if (::rename(worker.error_file.c_str(), kept.c_str()) != 0) return;
  worker.error_file = kept;
  worker.streams.folder = *folder;
}

void WorkerGroup::read_last_output(Worker& worker, WorkerExit& exit) {
  WorkerStreams& streams = worker.streams;
  streams.pull();
  exit.stderr_lines = streams.stderr_tail->lines(WorkerExit::kStderrLines);
  if (!worker.error_file.empty()) exit.report = read_error_file(worker.error_file);
  if (exit.stderr_lines.empty() && !streams.folder.empty())
    exit.stderr_lines = last_lines(streams.folder + "/stderr.log", WorkerExit::kStderrLines);
}

std::vector<RunningWorker> WorkerGroup::running() const {
  std::vector<RunningWorker> running;
  for (const auto& worker : workers_) {
    if (!worker->has_ended) running.push_back(describe(*worker));
  }
  return running;
}

std::vector<RunningWorker> WorkerGroup::started() const {
  std::vector<RunningWorker> started;
  for (const auto& worker : workers_) started.push_back(describe(*worker));
  return started;
}

RunningWorker WorkerGroup::describe(const Worker& worker) {
  const WorkerStreams& streams = worker.streams;
  return {.local_rank = worker.local_rank,
          .rank = worker.rank,
          .pid = worker.pid,
          .folder = streams.folder,
          .output_bytes = [out = streams.stdout_tail, err = streams.stderr_tail,
                           folder = streams.folder] {
            return out->total_bytes() + err->total_bytes() + size_of_logs(folder);
          }};
}

void WorkerGroup::remove_empty_log_dir() {
  if (config_.log_dir && config_.log_dir->remove_if_empty()) config_.log_dir.reset();
}

}  // namespace ddprun::agent
