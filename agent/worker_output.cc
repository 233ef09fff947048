// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_output.h"

#include <fcntl.h>
#include <spdlog/fmt/chrono.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "agent/decide/macros.h"
#include "store/base/check.h"
#include "store/clock.h"

namespace ddprun::agent {
namespace {

// "14:46:40.210", as in the agent's own lines.
std::string time_of_day() {
  auto now = std::chrono::floor<std::chrono::milliseconds>(wall_now());
  auto milliseconds = now.time_since_epoch().count() % 1000;
  return fmt::format("{:%H:%M:%S}.{:03}", fmt::localtime(std::chrono::system_clock::to_time_t(now)),
                     milliseconds);
}

Macros macros_of(const WorkerGroupConfig& config, const worker::WorkerEnv& env) {
  return {{"role_name", config.role},
          {"local_rank", std::to_string(env.local_rank)},
          {"rank", std::to_string(env.rank)},
          {"hostname", config.hostname},
          {"node", config.hostname},
          {"group_rank", std::to_string(env.group_rank)},
          {"restart_count", std::to_string(env.restart_count)}};
}

// The prefix of the worker's lines, and how it is made anew where it has the time in it.
struct Prefix {
  std::string text;
  std::function<std::string()> changing;
};

Prefix prefix_of(const WorkerGroupConfig& config, const worker::WorkerEnv& env) {
  auto at = [text = config.line_prefix, macros = macros_of(config, env)](std::string time) {
    Macros all = macros;
    all["time"] = std::move(time);
    return substitute(text, all);
  };
  if (at("a") == at("b")) return {.text = at(""), .changing = nullptr};
  return {.text = "", .changing = [at] { return at(time_of_day()); }};
}

Result<Fd> open_nothing() {
  Fd file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!file) return system_error(errno, "open /dev/null");
  return file;
}

}  // namespace

void WorkerStreams::worker_has_them() {
  files.clear();
  for (auto& pump : pumps) pump->close_write_end();
}

void WorkerStreams::pull() {
  for (auto& pump : pumps) pump->pull();
}

void WorkerStreams::finish() {
  for (auto& pump : pumps) pump->drain();
  pumps.clear();
}

AttemptOutput::AttemptOutput(boost::asio::any_io_executor executor, Consoles consoles,
                             process::IoThread& disk, const WorkerGroupConfig& config,
                             AttemptFiles files, std::function<void(const Error&)> on_lost)
    : executor_(std::move(executor)),
      consoles_(consoles),
      disk_(disk),
      config_(config),
      files_(std::move(files)),
      on_lost_(std::move(on_lost)),
      filtered_stdout_(
          filtered("/filtered_stdout.log", std::move(files_.filtered_out), config.stdout_filters)),
      filtered_stderr_(filtered("/filtered_stderr.log", std::move(files_.filtered_err),
                                config.stderr_filters)) {}

std::shared_ptr<process::FilteredLog> AttemptOutput::filtered(
    const char* name, Fd file, const std::vector<std::string>& filters) const {
  if (!file) return nullptr;
  process::LogFile log(files_.folder + name, std::move(file), disk_, on_lost_);
  return std::make_shared<process::FilteredLog>(process::FilteredLog{std::move(log), filters});
}

Result<WorkerStreams> AttemptOutput::open_worker(const worker::WorkerEnv& env) {
  auto local_rank = static_cast<std::size_t>(env.local_rank);
  AttemptFiles::OfWorker& files = files_.workers.at(local_rank);
  WorkerStreams streams;
  streams.folder = files.folder;
  const WorkerRoutes& routes = config_.routes.at(local_rank);
  streams.stdout_tail = std::make_shared<process::Tail>();
  streams.stderr_tail = std::make_shared<process::Tail>();
  Result<int> out = open_stream(streams,
                                {routes.out, consoles_.out, "/stdout.log", std::move(files.out),
                                 filtered_stdout_, streams.stdout_tail, false},
                                env);
  if (!out) return out.error();
  Result<int> err = open_stream(streams,
                                {routes.err, consoles_.err, "/stderr.log", std::move(files.err),
                                 filtered_stderr_, streams.stderr_tail, config_.keeps_stderr},
                                env);
  if (!err) return err.error();
  streams.stdout_fd = *out;
  streams.stderr_fd = *err;
  return streams;
}

// Returns the descriptor to give to the worker, -1 for the agent's own stream.
Result<int> AttemptOutput::open_stream(WorkerStreams& streams, Kind kind,
                                       const worker::WorkerEnv& env) const {
  if (kind.route == StreamRoute::Inherit && !kind.is_kept) {
    streams.is_seen = false;
    return -1;
  }
  if (kind.route == StreamRoute::Inherit || kind.route == StreamRoute::FileAndConsole)
    return open_pump(streams, std::move(kind), env);
  // A full disk has no file for it.
  if (kind.route == StreamRoute::Discard || !files_.lost.empty()) {
    Result<Fd> nothing = open_nothing();
    if (!nothing) return nothing.error();
    kind.file = std::move(*nothing);
    streams.is_seen = false;
  }
  check(static_cast<bool>(kind.file), "a stream goes to a file, and there is no log folder");
  const int fd = kind.file.get();
  streams.files.emplace_back(streams.folder + kind.file_name, std::move(kind.file), disk_, nullptr);
  return fd;
}

Result<int> AttemptOutput::open_pump(WorkerStreams& streams, Kind kind,
                                     const worker::WorkerEnv& env) const {
  bool is_raw = kind.route == StreamRoute::Inherit;
  Prefix prefix = is_raw ? Prefix{} : prefix_of(config_, env);
  process::OutputPump::Sinks sinks{.file = std::nullopt,
                                   .console = &kind.console,
                                   .prefix = std::move(prefix.text),
                                   .changing_prefix = std::move(prefix.changing),
                                   .filtered = kind.filtered,
                                   .tail = kind.tail,
                                   .is_raw = is_raw};
  if (kind.file)
    sinks.file.emplace(streams.folder + kind.file_name, std::move(kind.file), disk_, on_lost_);
  auto pump = process::OutputPump::open(executor_, std::move(sinks));
  if (!pump) return pump.error();
  streams.pumps.push_back(std::move(*pump));
  return streams.pumps.back()->write_end();
}

}  // namespace ddprun::agent
