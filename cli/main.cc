// SPDX-License-Identifier: BSD-3-Clause
//
// ddprun: parse, configure, log, run, exit.
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
#include <optional>

#include "agent/agent.h"
#include "cli/config/launch_config.h"
#include "cli/config/options.h"
#include "cli/log_setup.h"
#include "cli/machine.h"
#include "cli/preflight.h"
#include "cli/print.h"
#include "rendezvous/network.h"
#include "rendezvous/single_node.h"
#include "store/system_limits.h"
#include "worker/process/cgroup.h"
#include "worker/process/console.h"
#include "worker/process/fd.h"
#include "worker/process/guardian.h"

namespace {

namespace asio = boost::asio;
using namespace ddprun;

constexpr int kExitUsage = 2;

// Whoever starts us with a standard stream closed (`ddprun … >&-`) must not have a socket take its
// number, and with it the workers' output.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

int refuse(const Error& error, int exit_code = kExitUsage) {
  std::fprintf(stderr, "ddprun: %s\n", to_string(error).c_str());
  return exit_code;
}

int refuse_with_others(const cli::LaunchConfig& config, const std::string& why) {
  cli::report_preflight_failure(*config.network, why);
  return kExitUsage;
}

// What was asked for, and no run.
int answer(const std::string& text) {
  Result<void> printed = cli::print(text);
  return printed ? 0 : refuse(printed.error(), agent::kExitInfrastructure);
}

std::unique_ptr<rendezvous::Handler> make_rendezvous(asio::any_io_executor executor,
                                                     const cli::LaunchConfig& config) {
  if (config.network) {
    rendezvous::NetworkConfig network = *config.network;
    network.member.node.pid = ::getpid();
    return std::make_unique<rendezvous::NetworkHandler>(executor, std::move(network));
  }
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
  auto file = std::make_shared<process::Fd>(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
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

int run(cli::LaunchConfig config) {
  asio::io_context loop(1);
  process::Console out(loop.get_executor(), STDOUT_FILENO);
  process::Console err(loop.get_executor(), STDERR_FILENO);
  auto events = open_event_log(config.event_log, err);
  if (!events) return refuse(events.error());
  config.agent.event_sink = std::move(*events);
  auto logger =
      cli::make_logger(config.log_level, [&err](std::string_view line) { err.write(line); });
  for (const std::string& note : config.notes) logger->info("{}", note);
  for (const std::string& warning : config.warnings) logger->warn("{}", warning);

  std::string& mark = config.agent.workers.environment[process::kGuardianVariable];
  Result<process::Guardian> guardian = process::Guardian::start(mark);
  if (guardian) {
    mark = guardian->mark();
    config.agent.guardian_pid = guardian->pid();
    agent::SlurmSignals signals = config.agent.slurm_signals;
    if (signals == agent::SlurmSignals::Unknown || signals == agent::SlurmSignals::ToAll)
      config.agent.signal_reports = std::make_shared<process::Fd>(guardian->take_reports());
  } else {
    logger->warn("should ddprun be killed, what workers have started may live on: {}",
                 to_string(guardian.error()));
  }
  std::unique_ptr<rendezvous::Handler> rendezvous = make_rendezvous(loop.get_executor(), config);
  agent::Agent agent(loop.get_executor(), std::move(config.agent), *rendezvous, {out, err}, logger);
  int exit_code = agent::kExitInfrastructure;
  asio::co_spawn(loop, agent.run(), [&](std::exception_ptr error, int code) {
    if (error) std::rethrow_exception(error);  // a bug: nothing of ours throws
    exit_code = code;
    loop.stop();
  });
  loop.run();
  out.finish();
  err.finish();
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  cli::Environment environment = cli::read_environment();
  auto lookup = [&environment](std::string_view name) -> std::optional<std::string> {
    auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
  auto parsed = cli::parse_options({argv + 1, argv + argc}, lookup);
  if (!parsed) return refuse(parsed.error());
  if (auto* asked = std::get_if<cli::Answer>(&*parsed)) return answer(asked->text);
  auto config = cli::launch_config(std::get<cli::Options>(*parsed), environment,
                                   cli::this_machine(environment));
  if (!config) return refuse(config.error());
  if (config->dry_run) return answer(*config->dry_run);
  // A console that has gone (`ddprun … | head`) must not end the run.
  std::signal(SIGPIPE, SIG_IGN);
  // Nor must a log file that has reached the limit of `ulimit -f`: it is as a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  Result<void> has_room = cli::has_descriptors_for(config->agent.workers.local_world_size);
  if (!has_room) return refuse(has_room.error(), agent::kExitInfrastructure);
  store::raise_file_limit();
  if (!config->preflight_failure.empty())
    return refuse_with_others(*config, config->preflight_failure);
  agent::WorkerGroupConfig& workers = config->agent.workers;
  workers.keeps_stderr = ::isatty(STDERR_FILENO) == 0;
  if (workers.has_log_dir) {
    Result<agent::LogDir> logs =
        agent::LogDir::create(workers.log_base, workers.run_id, !workers.has_late_folders);
    if (!logs && !config->network) return refuse(logs.error());
    if (!logs) return refuse_with_others(*config, to_string(logs.error()));
    workers.log_dir = std::move(*logs);
  }
  if (auto base = process::delegated_cgroup()) {
    process::remove_stale_leaves(*base);
    workers.cgroup_base = std::move(*base);
  }
  auto timers = make_timer_file(config->agent);
  if (!timers) return refuse(timers.error());
  if (config->agent.has_timers) config->agent.timer_file = &*timers;
  return run(std::move(*config));
}
