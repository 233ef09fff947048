// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_output.h"

#include <fcntl.h>
#include <spdlog/fmt/chrono.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "agent/decide/macros.h"
#include "agent/log_dir.h"
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

Result<Fd> open_for_writing(const std::string& path, int flags) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644));
  if (!file) return system_error(errno, "open " + path);
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

Result<AttemptOutput> AttemptOutput::open(boost::asio::any_io_executor executor, Consoles consoles,
                                          const WorkerGroupConfig& config, int restart_count,
                                          std::function<void(const Error&)> on_lost) {
  AttemptOutput output(std::move(executor), consoles, config, std::move(on_lost));
  if (!config.log_dir || config.has_late_folders) return output;
  Result<std::string> folder = config.log_dir->make_attempt(restart_count);
  if (!folder) return folder.error();
  output.folder_ = *folder;
  auto out = output.open_filtered("/filtered_stdout.log", config.stdout_filters);
  if (!out) return out.error();
  output.filtered_stdout_ = *out;
  auto err = output.open_filtered("/filtered_stderr.log", config.stderr_filters);
  if (!err) return err.error();
  output.filtered_stderr_ = *err;
  return output;
}

Result<std::shared_ptr<process::FilteredLog>> AttemptOutput::open_filtered(
    const char* name, const std::vector<std::string>& filters) const {
  if (filters.empty()) return std::shared_ptr<process::FilteredLog>();
  auto file = process::LogFile::open(folder_ + name, on_lost_);
  if (!file) return file.error();
  return std::make_shared<process::FilteredLog>(process::FilteredLog{std::move(*file), filters});
}

Result<WorkerStreams> AttemptOutput::open_worker(const worker::WorkerEnv& env) const {
  WorkerStreams streams;
  if (!folder_.empty()) {
    Result<std::string> made = LogDir::make_worker_folder(folder_, env.local_rank);
    if (!made) return made.error();
    streams.folder = *made;
  }
  const WorkerRoutes& routes = config_.routes.at(static_cast<std::size_t>(env.local_rank));
  streams.stdout_tail = std::make_shared<process::Tail>();
  streams.stderr_tail = std::make_shared<process::Tail>();
  Result<int> out = open_stream(
      streams,
      {routes.out, consoles_.out, "/stdout.log", filtered_stdout_, streams.stdout_tail, false},
      env);
  if (!out) return out.error();
  Result<int> err = open_stream(streams,
                                {routes.err, consoles_.err, "/stderr.log", filtered_stderr_,
                                 streams.stderr_tail, config_.keeps_stderr},
                                env);
  if (!err) return err.error();
  streams.stdout_fd = *out;
  streams.stderr_fd = *err;
  return streams;
}

// Returns the descriptor to give to the worker, -1 for the agent's own stream.
Result<int> AttemptOutput::open_stream(WorkerStreams& streams, const Kind& kind,
                                       const worker::WorkerEnv& env) const {
  if (kind.route == StreamRoute::Inherit && !kind.is_kept) return -1;
  if (kind.route == StreamRoute::Inherit || kind.route == StreamRoute::FileAndConsole)
    return open_pump(streams, kind, env);
  bool is_discarded = kind.route == StreamRoute::Discard;
  check(is_discarded || !folder_.empty(), "a stream goes to a file, and there is no log folder");
  Result<Fd> file = is_discarded
                        ? open_for_writing("/dev/null", 0)
                        : open_for_writing(streams.folder + kind.file_name, O_CREAT | O_APPEND);
  if (!file) return file.error();
  streams.files.push_back(std::move(*file));
  return streams.files.back().get();
}

Result<int> AttemptOutput::open_pump(WorkerStreams& streams, const Kind& kind,
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
  if (!folder_.empty() && !is_raw) {
    auto file = process::LogFile::open(streams.folder + kind.file_name, on_lost_);
    if (!file) return file.error();
    sinks.file = std::move(*file);
  }
  auto pump = process::OutputPump::open(executor_, std::move(sinks));
  if (!pump) return pump.error();
  streams.pumps.push_back(std::move(*pump));
  return streams.pumps.back()->write_end();
}

}  // namespace ddprun::agent
