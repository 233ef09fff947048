// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_group.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <utility>

#include "agent/decide/macros.h"
#include "agent/decide/start_failure.h"
#include "agent/hang_watch.h"
#include "worker/env.h"
#include "worker/process/cgroup.h"
#include "worker/process/spawn.h"
#include "worker/process/text_file.h"

namespace ddprun::agent {

struct WorkerGroup::Worker {
  int local_rank = 0;
  int rank = 0;
  int pid = -1;
  std::string error_file;
  bool has_ended = false;
  WorkerStreams streams;
  process::CgroupLeaf cgroup;
};

// A worker that has been forked, and may not be its program yet.
struct WorkerGroup::Starting {
  worker::WorkerEnv env;
  WorkerStreams streams;
  process::CgroupLeaf cgroup;
  process::StartingProcess process;
};

namespace {

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
  return worker::parse_error_file(process::text_of_file(path).value_or(""))
      .value_or(worker::ErrorReport{});
}

// The last lines of a file, of its last 64 KiB.
std::vector<std::string> last_lines(const std::string& path, std::size_t count) {
  constexpr std::streamoff kTailBytes = 64 * 1024;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTailBytes));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
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
                         Consoles consoles, WorkerGroupConfig config,
                         std::function<void(const WorkerExit&)> on_exit,
                         std::function<void(const std::string&)> on_warning)
    : executor_(std::move(executor)),
      reaper_(reaper),
      consoles_(consoles),
      config_(std::move(config)),
      on_exit_(std::move(on_exit)),
      on_warning_(std::move(on_warning)) {}

WorkerGroup::~WorkerGroup() = default;

std::optional<WorkerGroup::StartFailure> WorkerGroup::start(const rendezvous::Round& round,
                                                            int restart_count) {
  workers_.clear();
  ++starts_;
  restart_count_ = restart_count;
  late_attempt_.clear();
  auto output = AttemptOutput::open(executor_, consoles_, config_, restart_count,
                                    [this](const Error& error) { output_lost(error); });
  if (!output) {
    return StartFailure{
        .started = 0, .why = to_string(output.error()), .exit_code = kExitInfrastructure};
  }
  std::vector<Starting> starting;
  std::string why;  // of the first that cannot be started
  int exit_code = kExitInfrastructure;
  for (int local_rank = 0; local_rank < config_.local_world_size && why.empty(); ++local_rank) {
    auto begun = begin_one(*output, worker_env(config_, round, restart_count, local_rank));
    if (begun) {
      starting.push_back(std::move(*begun));
    } else {
      why = of_local_rank(local_rank, begun.error());
    }
  }
  for (Starting& one : starting) {
    int local_rank = one.env.local_rank;
    Result<void> started = finish_one(std::move(one));
    if (!started && why.empty()) {
      why = of_local_rank(local_rank, started.error());
      exit_code = exit_code_of_start(started.error());
    }
  }
  if (why.empty()) return std::nullopt;
  return StartFailure{
      .started = static_cast<int>(workers_.size()), .why = why, .exit_code = exit_code};
}

Result<WorkerGroup::Starting> WorkerGroup::begin_one(const AttemptOutput& output,
                                                     worker::WorkerEnv env) {
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
  return Starting{std::move(env), std::move(*streams), std::move(cgroup), std::move(*process)};
}

Result<void> WorkerGroup::finish_one(Starting starting) {
  Result<process::Process> process = process::finish_spawn(std::move(starting.process));
  if (!process) return process.error();
  starting.streams.worker_has_them();
  workers_.push_back(std::make_shared<Worker>(Worker{.local_rank = starting.env.local_rank,
                                                     .rank = starting.env.rank,
                                                     .pid = process->pid,
                                                     .error_file = starting.env.error_file,
                                                     .streams = std::move(starting.streams),
                                                     .cgroup = std::move(starting.cgroup)}));
  reaper_.watch(std::move(*process),
                [this, worker = std::weak_ptr(workers_.back())](process::ExitStatus status) {
                  auto ended = worker.lock();
                  if (!ended || ended->has_ended) return;  // abandoned
                  ended->has_ended = true;
                  keep_error_file(*ended);
                  WorkerExit exit{.local_rank = ended->local_rank,
                                  .rank = ended->rank,
                                  .pid = ended->pid,
                                  .status = status,
                                  .folder = ended->streams.folder,
                                  .cgroup = ended->cgroup.path()};
                  if (!status.is_success()) read_last_output(*ended, exit);
                  on_exit_(exit);
                });
  return {};
}

// One line for the run: a full disk refuses every worker's.
void WorkerGroup::output_lost(const Error& error) {
  if (!log_loss_.empty()) return;
  log_loss_ = to_string(error);
  on_warning_("log files miss lines from here on, which are on the console only: " + log_loss_);
}

void WorkerGroup::signal_all(int signal) {
  for (const auto& worker : workers_) {
    if (!worker->has_ended) ::kill(-worker->pid, signal);
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

void WorkerGroup::abandon(int local_rank) {
  for (const auto& worker : workers_) {
    if (worker->local_rank == local_rank) worker->has_ended = true;
  }
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
    if (worker->has_ended) continue;
    const WorkerStreams& streams = worker->streams;
    running.push_back({.local_rank = worker->local_rank,
                       .rank = worker->rank,
                       .pid = worker->pid,
                       .folder = streams.folder,
                       .output_bytes = [out = streams.stdout_tail, err = streams.stderr_tail,
                                        folder = streams.folder] {
                         return out->total_bytes() + err->total_bytes() + size_of_logs(folder);
                       }});
  }
  return running;
}

void WorkerGroup::remove_empty_log_dir() {
  if (config_.log_dir && config_.log_dir->remove_if_empty()) config_.log_dir.reset();
}

}  // namespace ddprun::agent
