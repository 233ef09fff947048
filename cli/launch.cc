// SPDX-License-Identifier: BSD-3-Clause
#include "cli/launch.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "agent/agent.h"
#include "agent/worker_group.h"
#include "cli/early_end.h"
#include "cli/event_log.h"
#include "cli/host_registry_place.h"
#include "cli/log_setup.h"
#include "cli/machine.h"
#include "cli/preflight.h"
#include "cli/run_file_place.h"
#include "rendezvous/last_word.h"
#include "rendezvous/network.h"
#include "rendezvous/single_node.h"
#include "store/base/fd.h"
#include "store/base/seconds.h"
#include "store/base/text.h"
#include "store/clock.h"
#include "store/system_limits.h"
#include "worker/process/cgroup.h"
#include "worker/process/console.h"
#include "worker/process/guardian.h"
#include "worker/process/io_thread.h"
#include "worker/process/marks.h"
#include "worker/process/reaper.h"
#include "worker/process/sweep.h"
#include "worker/process/users_below.h"

namespace ddprun::cli {
namespace {

namespace asio = boost::asio;

// How long the end waits for consoles and disk before a line says so: as long as for any other call
// that stands still.
constexpr auto kSilentWait = process::IoThread::kStall;
// How long the last lines, about output that is lost, are waited for.
constexpr auto kLastLinePatience = std::chrono::seconds(1);
// Where the workers have used up the grace of a signal, their output has so long at least.
constexpr auto kLeastForOutput = std::chrono::seconds(2);
// How long what is just being written when a signal comes is waited for.
constexpr auto kWriteInFlight = std::chrono::milliseconds(200);

// How long a guardian tries to say where the nodes meet that a killed agent's workers are dead.
constexpr auto kLastWordPatience = std::chrono::seconds(3);

std::unique_ptr<rendezvous::Handler> make_rendezvous(asio::any_io_executor executor,
                                                     const LaunchConfig& config,
                                                     const agent::AgentConfig& agent,
                                                     process::IoThread& hosts_disk) {
  const std::shared_ptr<process::Guardian>& guardian = agent.guardian;
  rendezvous::LeaseHolder holder;
  if (guardian) {
    holder.renew = [guardian](MonoTime end, Duration patience) {
      guardian->renew_lease(end, patience);
    };
    holder.leave_last_word = [guardian](std::string word) {
      guardian->leave_last_word(std::move(word));
    };
  }
  rendezvous::WorkerStoreAccess access = config.worker_store;
  auto users = std::make_shared<process::UsersBelow>(agent.sweep_scope);
  access.is_of_job = [users](std::uint32_t user) { return users->have(user, mono_now()); };
  if (config.network) {
    rendezvous::NetworkConfig network = *config.network;
    network.worker_store = std::move(access);
    network.node_files = node_file_folder();
    auto registry = make_host_registry(executor, network, hosts_disk);
    return std::make_unique<rendezvous::NetworkHandler>(
        executor, std::move(network), run_file_place("", read_environment(), hosts_disk),
        std::move(holder), std::move(registry));
  }
  return std::make_unique<rendezvous::SingleNodeHandler>(
      executor, rendezvous::SingleNodeConfig{.self = config.self,
                                             .max_restarts = config.max_restarts,
                                             .master = config.master,
                                             .worker_store = std::move(access),
                                             .run = agent.workers.run_id,
                                             .host = agent.workers.hostname,
                                             .page = config.page});
}

std::string describe(const process::IoThread::Stall& stall) {
  if (!stall.failure.empty()) return fmt::format("'{}' has failed: {}", stall.what, stall.failure);
  std::string lasted = seconds_text(stall.lasted);
  return stall.is_over ? fmt::format("'{}' stood still for {}", stall.what, lasted)
                       : fmt::format("'{}' has stood still for {}; the run goes on meanwhile",
                                     stall.what, lasted);
}

// Where the output of this process goes.
struct Outputs {
  process::Console& out;
  process::Console& err;
  process::IoThread& disk;
};

asio::awaitable<void> taken(Outputs outputs, MonoTime deadline) {
  co_await outputs.out.finish(deadline);
  co_await outputs.err.finish(deadline);
  co_await outputs.disk.settled(deadline);
}

// Whether anything does.
bool say_what_waits(const Outputs& outputs, spdlog::logger& logger) {
  for (auto [name, console] :
       {std::pair("stdout", &outputs.out), std::pair("stderr", &outputs.err)}) {
    if (std::size_t bytes = console->waiting_bytes(); bytes > 0)
      logger.warn("waiting until {} has taken {} bytes of output; a signal ends the wait", name,
                  bytes);
  }
  return outputs.out.waiting_bytes() + outputs.err.waiting_bytes() > 0 || !outputs.disk.is_idle();
}

struct OutputEnd {
  bool is_lost = false;
  int signal = 0;  // that came meanwhile; 0 for none
};

// Waits until the consoles' readers and the disk have taken everything: for ever, but a signal ends
// it, and so does `deadline`.  Says what is lost then.
asio::awaitable<OutputEnd> finish_output(Outputs outputs, const std::vector<int>& stop_signals,
                                         MonoTime deadline, spdlog::logger& logger) {
  using namespace asio::experimental::awaitable_operators;
  asio::signal_set signals(co_await asio::this_coro::executor);
  for (int signal : stop_signals) signals.add(signal);
  auto outcome = co_await (taken(outputs, std::min(deadline, mono_now() + kSilentWait)) ||
                           signals.async_wait(asio::use_awaitable));
  if (outcome.index() == 0 && mono_now() < deadline && say_what_waits(outputs, logger)) {
    outcome = co_await (taken(outputs, deadline) || signals.async_wait(asio::use_awaitable));
  }
  int signal = outcome.index() == 1 ? std::get<1>(outcome) : 0;
  // What a reader or the disk is just taking when the signal comes is not lost.
  co_await taken(outputs, mono_now() + kWriteInFlight);
  const std::size_t lost_out = outputs.out.waiting_bytes();  // before the lines about it
  const std::size_t lost_err = outputs.err.waiting_bytes();
  for (auto [name, bytes] : {std::pair("stdout", lost_out), std::pair("stderr", lost_err)}) {
    if (bytes == 0) continue;
    logger.error("{} has not taken {} bytes of output, which are lost", name, bytes);
  }
  if (!outputs.disk.is_idle()) {
    auto stall = outputs.disk.stall();
    logger.error("the disk stands still{}{}; the files miss what came last", stall ? ": " : "",
                 stall ? describe(*stall) : "");
  }
  bool is_lost = lost_out + lost_err > 0 || !outputs.disk.is_idle();
  // Of those lines, what a reader takes at once.
  co_await outputs.err.finish(mono_now() + kLastLinePatience);
  co_return OutputEnd{is_lost, signal};
}

// Where events go; nullptr where they are not wanted.  One write a line, so that several nodes may
// share a file.
Result<std::function<void(std::string_view)>> open_event_log(const std::string& name,
                                                             process::Console& err,
                                                             process::IoThread& disk,
                                                             spdlog::logger& logger) {
  if (name.empty()) return nullptr;
  if (name == "console") return [&err](std::string_view line) { err.write(line); };
  std::string path = name.substr(name.find(':') + 1);
  Result<Fd> opened = open_event_file(path);
  if (!opened) return opened.error();
  auto file = std::make_shared<EventFile>(std::move(*opened), path);
  auto has_told = std::make_shared<bool>(false);
  return [file, has_told, &disk, &logger, call = "write " + path](std::string_view text) {
    auto written = std::make_shared<Result<void>>();
    disk.run(
        call, [file, written, record = std::string(text)] { *written = file->write(record); },
        [written, has_told, &logger] {
          if (*written || std::exchange(*has_told, true)) return;
          logger.warn("the event log misses records from here on: {}", to_string(written->error()));
        });
  };
}

// torch's file timers, where they are wanted, in a place of their own where none is named.
Result<agent::TimerFile> make_timer_file(agent::AgentConfig& config) {
  if (!config.has_timers) return agent::TimerFile();
  if (config.timer_path.empty()) {
    config.timer_path = agent::temporary_folder() + "/watchdog_timer_" +
                        std::to_string(::getpid()) + "_" + std::to_string(std::random_device{}());
  }
  config.workers.environment["TORCHELASTIC_TIMER_FILE"] = config.timer_path;
  return agent::TimerFile::create(config.timer_path);
}

// The folders in which the workers' logs and cgroups are, made or found on this machine.  Where the
// user has asked for no log, none need be there, as in a container whose disk cannot be written.
Result<void> add_places(agent::WorkerGroupConfig& workers, std::vector<std::string>& warnings) {
  if (workers.has_log_dir) {
    Result<agent::LogDir> logs =
        agent::LogDir::create(workers.log_base, workers.run_id, !workers.has_late_folders);
    if (!logs && !workers.has_late_folders) return logs.error();
    if (logs) {
      workers.log_dir = std::make_shared<const agent::LogDir>(std::move(*logs));
      if (workers.log_dir->is_temporary()) remove_at_early_end(workers.log_dir->path());
    } else {
      warnings.push_back("nothing of a failure is kept in files: " + to_string(logs.error()));
      workers.has_log_dir = workers.has_late_folders = false;
    }
  }
  if (auto base = process::delegated_cgroup()) {
    process::remove_stale_leaves(*base);
    workers.cgroup_base = std::move(*base);
  }
  return {};
}

// For a node that cannot run its workers: tells the other nodes, which would wait for it in vain.
// A log folder that was made for nothing goes.
int refuse_here(const LaunchConfig& config, const agent::WorkerGroupConfig& workers,
                const Error& error, int exit_code = kExitUsage) {
  if (workers.log_dir) workers.log_dir->remove_if_empty();
  if (!config.network) return refuse(error, exit_code);
  report_preflight_failure(*config.network, to_string(error));
  return exit_code;
}

// A folder that the user has not asked for stays empty, and goes.
void add_timeline(const LaunchConfig& config, agent::AgentConfig& agent) {
  const agent::WorkerGroupConfig& workers = agent.workers;
  bool is_asked_for = workers.log_dir && (!workers.log_base.empty() || !workers.has_late_folders);
  if (!is_asked_for) return;
  agent.timeline_path = workers.log_dir->path() + "/timeline.json";
  agent.node_name = config.network ? config.network->member.name : rendezvous::kSingleNode;
}

// What workers start is marked, so that a sweep and the guardian know it.
void add_guardian(agent::AgentConfig& agent, spdlog::logger& logger) {
  if (std::string obstacle = process::obstacle_to_sweep(); !obstacle.empty())
    logger.warn(
        "what workers leave behind is not found, and not ended, nor are the workers of an agent "
        "that "
        "stands still: {}",
        obstacle);
  process::SweepScope scope;
  scope.bystanders = process::Bystanders::note();
  std::string& variable = agent.workers.environment[process::kGuardianVariable];
  process::Marks marks = process::mark_this_process(variable);
  variable = process::guardian_variable(variable, marks);
  scope.marks = process::marks_of_descendants(marks);
  agent.sweep_scope = std::make_shared<process::SweepScope>(std::move(scope));
  Result<process::Guardian> guardian =
      process::Guardian::start(std::move(marks), [](std::string_view last_word) {
        rendezvous::deliver_last_word(last_word, kLastWordPatience);
      });
  if (!guardian) {
    logger.warn("if ddprun is killed or stands still, processes that workers started may stay: {}",
                to_string(guardian.error()));
    return;
  }
  agent.guardian = std::make_shared<process::Guardian>(std::move(*guardian));
  agent.workers.lease_end = [of = agent.guardian] { return of->lease_end(); };
  if (agent.scheduler && agent.scheduler->reach != agent::SignalReach::Agent)
    agent.signal_reports = std::make_shared<Fd>(agent.guardian->take_reports());
}

// Runs the agent until its output is taken as well, and returns its exit code.
asio::awaitable<int> run_to_the_end(agent::Agent& agent, Outputs outputs,
                                    std::vector<int> stop_signals, Duration stop_grace,
                                    spdlog::logger& logger) {
  int exit_code = co_await agent.run();
  // The grace is that of the signal: a scheduler that sent it kills this process after it.
  MonoTime deadline = std::max(agent.shutdown_at() + stop_grace, mono_now() + kLeastForOutput);
  if (agent.late_signal() != 0) {
    deadline = mono_now() + kLastLinePatience;
  } else if (agent.shutdown_signal() == 0) {
    deadline = MonoTime::max();
  }
  OutputEnd end = co_await finish_output(outputs, stop_signals, deadline, logger);
  if (end.is_lost && exit_code == 0) {
    for (int signal : {agent.shutdown_signal(), agent.late_signal(), end.signal})
      if (signal != 0) exit_code = 128 + signal;
  }
  co_return exit_code;
}

// Runs the agent to its end.  `agent_config` is that of `config`, with what this machine gave it.
int run(const LaunchConfig& config, agent::AgentConfig agent_config,
        const std::vector<std::string>& warnings) {
  asio::io_context loop(1);
  std::shared_ptr<spdlog::logger> logger;
  auto say_stall = [&logger](const process::IoThread::Stall& stall) {
    logger->warn("{}", describe(stall));
  };
  process::IoThread disk(loop.get_executor(), say_stall);
  // Of its own: what a host keeps does not wait for the disk of the logs.
  process::IoThread hosts_disk(loop.get_executor(), say_stall);
  process::Console out(loop.get_executor(), STDOUT_FILENO, say_stall);
  process::Console err(loop.get_executor(), STDERR_FILENO, say_stall, &out);
  logger = make_logger(config.log_level, [&err](std::string_view line) { err.write(line); });
  auto events = open_event_log(config.event_log, err, disk, *logger);
  if (!events) return refuse_here(config, agent_config.workers, events.error());
  agent_config.event_sink = std::move(*events);
  for (const std::string& note : config.notes) logger->info("{}", note);
  for (const std::string& warning : warnings) logger->warn("{}", warning);
  const auto& logs = agent_config.workers.log_dir;
  if (std::string exposure = logs ? logs->exposure() : ""; !exposure.empty())
    logger->warn("{}", exposure);

  add_guardian(agent_config, *logger);
  std::unique_ptr<rendezvous::Handler> rendezvous =
      make_rendezvous(loop.get_executor(), config, agent_config, hosts_disk);
  const std::vector<int> stop_signals = agent_config.stop_signals;
  const Duration stop_grace = agent_config.core.stop_grace;
  process::Reaper reaper(loop.get_executor());
  agent::WorkerGroup workers(loop.get_executor(), reaper, {out, err}, disk, agent_config.workers);
  agent::AgentParts parts{.rendezvous = *rendezvous,
                          .workers = workers,
                          .reaper = reaper,
                          .disk = disk,
                          .logger = logger,
                          .sweep =
                              [&reaper](const MonoTime& deadline, process::SweepScope scope) {
                                return process::sweep(reaper, deadline, std::move(scope));
                              },
                          .clock = read_clocks};
  agent::Agent agent(loop.get_executor(), std::move(agent_config), std::move(parts));
  int exit_code = agent::kExitInfrastructure;
  asio::co_spawn(loop, run_to_the_end(agent, {out, err, disk}, stop_signals, stop_grace, *logger),
                 [&](std::exception_ptr error, int code) {
                   if (error) std::rethrow_exception(error);  // a bug: nothing of ours throws
                   exit_code = code;
                   loop.stop();
                 });
  loop.run();
  // The exit code is decided: a signal must not change it once the agent, which catches it, is
  // gone.
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  return exit_code;
}

}  // namespace

int refuse(const Error& error, int exit_code) {
  std::fprintf(stderr, "ddprun: %s\n", printable(to_string(error)).c_str());
  return exit_code;
}

int launch(const LaunchConfig& config) {
  // A console that has gone (`ddprun … | head`) must not end the run.
  std::signal(SIGPIPE, SIG_IGN);
  // Nor must a log file that has reached the limit of `ulimit -f`: it is as a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  agent::AgentConfig agent = config.agent;
  agent.program = "ddprun " DDPRUN_VERSION;
  agent.workers.keeps_stderr = ::isatty(STDERR_FILENO) == 0;
  // Without threads the others cannot be told.
  Result<void> has_threads = config.network ? has_threads_for_rendezvous() : Result<void>{};
  if (!has_threads) return refuse(has_threads.error(), agent::kExitInfrastructure);
  Result<void> has_room = has_descriptors_for(agent.workers);
  store::raise_file_limit();
  if (!has_room)
    return refuse_here(config, agent.workers, has_room.error(), agent::kExitInfrastructure);
  if (!config.preflight_failure.empty())
    return refuse_here(config, agent.workers, Error{Errc::InvalidInput, config.preflight_failure});

  std::vector<std::string> warnings = config.warnings;
  Result<void> placed = add_places(agent.workers, warnings);
  if (!placed) return refuse_here(config, agent.workers, placed.error());
  add_timeline(config, agent);
  auto timers = make_timer_file(agent);
  if (!timers) return refuse_here(config, agent.workers, timers.error());
  if (agent.has_timers) agent.timer_file = &*timers;
  return run(config, std::move(agent), warnings);
}

}  // namespace ddprun::cli
