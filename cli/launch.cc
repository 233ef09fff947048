// SPDX-License-Identifier: BSD-3-Clause
#include "cli/launch.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>

#include "agent/agent.h"
#include "cli/log_setup.h"
#include "cli/machine.h"
#include "cli/preflight.h"
#include "rendezvous/network.h"
#include "rendezvous/single_node.h"
#include "store/base/fd.h"
#include "store/system_limits.h"
#include "worker/process/cgroup.h"
#include "worker/process/console.h"
#include "worker/process/guardian.h"

namespace ddprun::cli {
namespace {

namespace asio = boost::asio;

std::unique_ptr<rendezvous::Handler> make_rendezvous(asio::any_io_executor executor,
                                                     const LaunchConfig& config) {
  if (config.network)
    return std::make_unique<rendezvous::NetworkHandler>(executor, *config.network);
  return std::make_unique<rendezvous::SingleNodeHandler>(
      executor,
      rendezvous::SingleNodeConfig{
          .self = config.self, .max_restarts = config.max_restarts, .master = config.master});
}

// Where events go; nullptr where they are not wanted.  One write a line, so that several nodes may
// share a file.
Result<std::function<void(std::string_view)>> open_event_log(const std::string& name,
                                                             process::Console& err) {
  if (name.empty()) return nullptr;
  if (name == "console") return [&err](std::string_view line) { err.write(line); };
  std::string path = name.substr(name.find(':') + 1);
  auto file =
      std::make_shared<Fd>(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!*file) return system_error(errno, "--event-log-handler: open " + path);
  return [file](std::string_view line) { (void)!::write(file->get(), line.data(), line.size()); };
}

// torch's file timers, where they are wanted, in a place of their own where none is named.
Result<agent::TimerFile> make_timer_file(agent::AgentConfig& config) {
  if (!config.has_timers) return agent::TimerFile();
  if (config.timer_path.empty()) {
    std::error_code error;
    std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    config.timer_path = folder / ("watchdog_timer_" + std::to_string(::getpid()));
  }
  config.workers.environment["TORCHELASTIC_TIMER_FILE"] = config.timer_path;
  return agent::TimerFile::create(config.timer_path);
}

// The folders in which the workers' logs and cgroups are, made or found on this machine.
Result<void> add_places(agent::WorkerGroupConfig& workers) {
  workers.keeps_stderr = ::isatty(STDERR_FILENO) == 0;
  if (workers.has_log_dir) {
    Result<agent::LogDir> logs =
        agent::LogDir::create(workers.log_base, workers.run_id, !workers.has_late_folders);
    if (!logs) return logs.error();
    workers.log_dir = std::move(*logs);
  }
  if (auto base = process::delegated_cgroup()) {
    process::remove_stale_leaves(*base);
    workers.cgroup_base = std::move(*base);
  }
  return {};
}

// The guardian marks what workers start, and hears the signals that Slurm sends to all.
void add_guardian(agent::AgentConfig& agent, Result<process::Guardian>& guardian,
                  spdlog::logger& logger) {
  if (!guardian) {
    logger.warn("if ddprun is killed, processes that workers started may stay: {}",
                to_string(guardian.error()));
    return;
  }
  agent.workers.environment[process::kGuardianVariable] = guardian->mark();
  agent.guardian_pid = guardian->pid();
  if (agent.scheduler && agent.scheduler->reach != agent::SignalReach::Agent)
    agent.signal_reports = std::make_shared<Fd>(guardian->take_reports());
}

// Runs the agent to its end.  `agent_config` is that of `config`, with what this machine gave it.
int run(const LaunchConfig& config, agent::AgentConfig agent_config) {
  asio::io_context loop(1);
  process::Console out(loop.get_executor(), STDOUT_FILENO);
  process::Console err(loop.get_executor(), STDERR_FILENO);
  auto events = open_event_log(config.event_log, err);
  if (!events) return refuse(events.error());
  agent_config.event_sink = std::move(*events);
  auto logger = make_logger(config.log_level, [&err](std::string_view line) { err.write(line); });
  for (const std::string& note : config.notes) logger->info("{}", note);
  for (const std::string& warning : config.warnings) logger->warn("{}", warning);

  Result<process::Guardian> guardian =
      process::Guardian::start(agent_config.workers.environment[process::kGuardianVariable]);
  add_guardian(agent_config, guardian, *logger);
  std::unique_ptr<rendezvous::Handler> rendezvous = make_rendezvous(loop.get_executor(), config);
  agent::Agent agent(loop.get_executor(), std::move(agent_config), *rendezvous, {out, err}, logger);
  int exit_code = agent::kExitInfrastructure;
  asio::co_spawn(loop, agent.run(), [&](std::exception_ptr error, int code) {
    if (error) std::rethrow_exception(error);  // a bug: nothing of ours throws
    exit_code = code;
    loop.stop();
  });
  loop.run();
  out.finish();
  err.finish();
  // The exit code is decided: a signal must not change it once the agent, which catches it, is
  // gone.
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  return exit_code;
}

int refuse_with_others(const LaunchConfig& config, const std::string& why) {
  report_preflight_failure(*config.network, why);
  return kExitUsage;
}

}  // namespace

int refuse(const Error& error, int exit_code) {
  std::fprintf(stderr, "ddprun: %s\n", to_string(error).c_str());
  return exit_code;
}

int launch(const LaunchConfig& config) {
  // A console that has gone (`ddprun … | head`) must not end the run.
  std::signal(SIGPIPE, SIG_IGN);
  // Nor must a log file that has reached the limit of `ulimit -f`: it is as a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  Result<void> has_room = has_descriptors_for(config.agent.workers.local_world_size);
  if (!has_room) return refuse(has_room.error(), agent::kExitInfrastructure);
  store::raise_file_limit();
  if (!config.preflight_failure.empty())
    return refuse_with_others(config, config.preflight_failure);

  agent::AgentConfig agent = config.agent;
  Result<void> placed = add_places(agent.workers);
  if (!placed && !config.network) return refuse(placed.error());
  if (!placed) return refuse_with_others(config, to_string(placed.error()));
  auto timers = make_timer_file(agent);
  if (!timers) return refuse(timers.error());
  if (agent.has_timers) agent.timer_file = &*timers;
  return run(config, std::move(agent));
}

}  // namespace ddprun::cli
