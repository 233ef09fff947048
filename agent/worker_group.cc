// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_group.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <fstream>
#include <iterator>
#include <utility>

#include "agent/macros.h"
#include "store/base/check.h"
#include "worker/env.h"
#include "worker/process/spawn.h"

namespace ddprun::agent {

struct WorkerGroup::Worker {
  int local_rank = 0;
  int rank = 0;
  int pid = -1;
  bool has_ended = false;
  std::string prefix;
  std::vector<process::Fd> files;  // the agent's copies; closed after the start
  std::vector<std::unique_ptr<process::OutputPump>> pumps;
};

namespace {

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
          .max_restarts = round.max_restarts,
          .run_id = config.run_id};
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
  std::vector<std::string> assignments;
  assignments.reserve(environment.size());
  for (const auto& [name, value] : environment) assignments.push_back(name + "=" + value);
  return assignments;
}

Result<process::Fd> open_for_writing(const std::string& path, int flags) {
  process::Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644));
  if (!file) return system_error(errno, "open " + path);
  return file;
}

worker::ErrorReport read_error_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return worker::parse_error_file(text).value_or(worker::ErrorReport{});
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

}  // namespace

WorkerGroup::WorkerGroup(boost::asio::any_io_executor executor, process::Reaper& reaper,
                         Consoles consoles, WorkerGroupConfig config,
                         std::function<void(const WorkerExit&)> on_exit)
    : executor_(std::move(executor)),
      reaper_(reaper),
      consoles_(consoles),
      config_(std::move(config)),
      on_exit_(std::move(on_exit)) {}

WorkerGroup::~WorkerGroup() = default;

std::optional<WorkerGroup::StartFailure> WorkerGroup::start(const rendezvous::Round& round,
                                                            int restart_count) {
  workers_.clear();
  if (config_.has_log_dir && !log_dir_) {
    Result<LogDir> made = LogDir::create(config_.log_base, config_.run_id);
    if (!made) return StartFailure{.started = 0, .why = to_string(made.error())};
    log_dir_ = std::move(*made);
  }
  for (int local_rank = 0; local_rank < config_.local_world_size; ++local_rank) {
    Result<void> started = start_one(round, restart_count, local_rank);
    if (!started) {
      return StartFailure{
          .started = local_rank,
          .why = "local rank " + std::to_string(local_rank) + ": " + to_string(started.error())};
    }
  }
  return std::nullopt;
}

Result<void> WorkerGroup::start_one(const rendezvous::Round& round, int restart_count,
                                    int local_rank) {
  worker::WorkerEnv env = worker_env(config_, round, restart_count, local_rank);
  auto worker = std::make_unique<Worker>(Worker{.local_rank = local_rank, .rank = env.rank});
  std::string folder;
  if (log_dir_) {
    Result<std::string> made = log_dir_->make_worker_folder(restart_count, local_rank);
    if (!made) return made.error();
    folder = *made;
    env.error_file = folder + "/error.json";
  }
  Macros macros = {{"role_name", config_.role},
                   {"local_rank", std::to_string(local_rank)},
                   {"rank", std::to_string(env.rank)},
                   {"hostname", config_.hostname}};
  worker->prefix = substitute(config_.line_prefix, macros);

  process::ProcessSpec spec;
  for (const std::string& argument : config_.command) {
    spec.argv.push_back(substitute(argument, {{"local_rank", std::to_string(local_rank)}}));
  }
  auto index = static_cast<std::size_t>(local_rank);
  const WorkerPlacement& placement = config_.placements.at(index);
  spec.environment = environment_of(config_, placement, env);
  spec.cpus = placement.cpus;
  const WorkerRoutes& routes = config_.routes.at(index);
  Result<int> out = open_stream(*worker, routes.out, consoles_.out, folder + "/stdout.log");
  if (!out) return out.error();
  Result<int> err = open_stream(*worker, routes.err, consoles_.err, folder + "/stderr.log");
  if (!err) return err.error();
  spec.stdout_fd = *out;
  spec.stderr_fd = *err;

  Result<process::Process> process = process::spawn(spec);
  if (!process) return process.error();
  worker->pid = process->pid;
  worker->files.clear();
  for (auto& pump : worker->pumps) pump->close_write_end();
  reaper_.watch(std::move(*process), [this, ended = worker.get(),
                                      error_file = env.error_file](process::ExitStatus status) {
    ended->has_ended = true;
    std::string message;
    if (!status.is_success()) message = read_error_file(error_file).message;
    on_exit_({.local_rank = ended->local_rank,
              .rank = ended->rank,
              .pid = ended->pid,
              .status = status,
              .message = std::move(message)});
  });
  workers_.push_back(std::move(worker));
  return {};
}

// Returns the descriptor to give to the worker, -1 for the agent's own stream.
Result<int> WorkerGroup::open_stream(Worker& worker, StreamRoute route, process::Console& console,
                                     const std::string& path) {
  if (route == StreamRoute::Inherit) return -1;
  process::Fd file;
  if (route == StreamRoute::Discard || log_dir_) {
    bool is_discarded = route == StreamRoute::Discard;
    Result<process::Fd> opened = is_discarded ? open_for_writing("/dev/null", 0)
                                              : open_for_writing(path, O_CREAT | O_APPEND);
    if (!opened) return opened.error();
    file = std::move(*opened);
  }
  if (route == StreamRoute::FileAndConsole) {
    auto pump = process::OutputPump::open(
        executor_, {.file = std::move(file), .console = &console, .prefix = worker.prefix});
    if (!pump) return pump.error();
    worker.pumps.push_back(std::move(*pump));
    return worker.pumps.back()->write_end();
  }
  check(static_cast<bool>(file), "a stream goes to a file, and there is no log folder");
  worker.files.push_back(std::move(file));
  return worker.files.back().get();
}

void WorkerGroup::signal_all(int signal) {
  for (const auto& worker : workers_) {
    if (!worker->has_ended) ::kill(-worker->pid, signal);
  }
}

void WorkerGroup::finish_output() {
  for (const auto& worker : workers_) {
    for (auto& pump : worker->pumps) pump->drain();
    worker->pumps.clear();
  }
}

LastWords WorkerGroup::last_words(int restart_count, int local_rank) const {
  LastWords words;
  if (!log_dir_) return words;
  std::string folder = log_dir_->worker_folder(restart_count, local_rank);
  words.report = read_error_file(folder + "/error.json");
  words.stderr_lines = last_lines(folder + "/stderr.log", LastWords::kStderrLines);
  if (!words.stderr_lines.empty()) words.stderr_path = folder + "/stderr.log";
  return words;
}

void WorkerGroup::remove_empty_log_dir() const {
  if (log_dir_) log_dir_->remove_if_empty();
}

}  // namespace ddprun::agent
