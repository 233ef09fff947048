// SPDX-License-Identifier: BSD-3-Clause
#include "agent/local_worker.h"

#include <signal.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include "store/base/fd.h"
#include "worker/env.h"
#include "worker/process/text_file.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

worker::ErrorReport read_error_file(const std::string& path) {
  constexpr std::size_t kMostBytes = 32 << 20;  // a message may have a whole tensor in it
  return worker::parse_error_file(process::text_of_regular_file(path, kMostBytes).value_or(""))
      .value_or(worker::ErrorReport{});
}

}  // namespace

std::vector<std::string> last_stderr_lines(const std::string& folder) {
  constexpr std::size_t kTailBytes = 64 * 1024;
  std::istringstream text(
      process::end_of_regular_file(folder + "/stderr.log", kTailBytes).value_or(""));
  std::deque<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > WorkerExit::kStderrLines) lines.pop_front();
  }
  return {lines.begin(), lines.end()};
}

LocalWorker::LocalWorker(const asio::any_io_executor& executor, Parts parts,
                         process::StartingProcess& starting)
    : parts_(std::move(parts)),
      pid_(starting.process.pid),
      is_fork_(starting.is_fork),
      exec_report_(std::in_place, executor, starting.report.release()),
      exec_context_(std::move(starting.context)) {
  if (!is_fork_) parts_.streams.worker_has_them();
}

void LocalWorker::watch_exec(std::function<void()> then) {
  exec_report_->async_wait(asio::posix::descriptor_base::wait_read,
                           [then = std::move(then)](boost::system::error_code error) {
                             if (!error) then();
                           });
}

std::optional<Result<void>> LocalWorker::take_exec_result(bool is_gone) {
  if (exec_report_) {
    Fd report(exec_report_->release());
    exec_report_.reset();
    exec_result_ = is_fork_ ? process::report_of_fork(report, exec_context_)
                            : process::report_of(report, exec_context_);
    if (*exec_result_) parts_.streams.worker_has_them();
  }
  bool waits = exec_result_ && !*exec_result_ && !is_gone;
  return waits ? std::nullopt : std::exchange(exec_result_, std::nullopt);
}

WorkerExit LocalWorker::exit(process::ExitStatus status) {
  WorkerStreams& streams = parts_.streams;
  WorkerExit exit{.local_rank = parts_.local_rank,
                  .rank = parts_.rank,
                  .pid = pid_,
                  .status = status,
                  .folder = streams.folder,
                  .cgroup = parts_.cgroup.path()};
  streams.worker_has_them();
  if (status.is_success()) return exit;
  streams.pull();
  exit.stderr_lines = streams.stderr_tail->lines(WorkerExit::kStderrLines);
  return exit;
}

ReadEnd LocalWorker::reader_of_end(const ErrorFiles& error_files) const {
  if (parts_.error_file.empty()) return nullptr;
  ErrorFiles::Keep keep = parts_.streams.folder.empty() ? error_files.keeper() : nullptr;
  return [file = parts_.error_file, keep = std::move(keep)](WorkerExit& exit) mutable {
    if (auto kept = keep ? keep(file, exit.local_rank) : std::nullopt) {
      file = kept->file;
      exit.folder = kept->folder;
    }
    exit.report = read_error_file(file);
    std::error_code unknown;
    exit.is_folder_empty =
        !exit.folder.empty() && std::filesystem::is_empty(exit.folder, unknown) && !unknown;
    if (exit.stderr_lines.empty() && !exit.folder.empty())
      exit.stderr_lines = last_stderr_lines(exit.folder);
  };
}

void LocalWorker::signal_group(int signal) const {
  process::signal_group(pid_, signal);
}

void LocalWorker::signal(int signal) const {
  ::kill(pid_, signal);
}

void LocalWorker::finish_output() {
  parts_.streams.worker_has_them();
  parts_.streams.finish();
  parts_.cgroup = {};
}

RunningWorker LocalWorker::describe() const {
  const WorkerStreams& streams = parts_.streams;
  return {
      .local_rank = parts_.local_rank,
      .rank = parts_.rank,
      .pid = pid_,
      .folder = streams.folder,
      .output_bytes = [out = streams.stdout_tail,
                       err =
                           streams.stderr_tail] { return out->total_bytes() + err->total_bytes(); },
      .is_output_seen = streams.is_seen,
      .stderr_lines = [err = streams.stderr_tail] { return err->lines(WorkerExit::kStderrLines); },
      .last_line =
          [out = streams.stdout_tail, err = streams.stderr_tail] {
            for (const auto& tail : {out, err}) {
              std::vector<std::string> lines = tail->lines(1);
              if (!lines.empty()) return lines.back();
            }
            return std::string();
          }};
}

}  // namespace ddprun::agent
