// SPDX-License-Identifier: BSD-3-Clause
#include "agent/inspection.h"

#include <exception>
#include <utility>

#include "agent/decide/wait_words.h"
#include "agent/decide/whereabouts.h"
#include "agent/local_worker.h"
#include "store/clock.h"
#include "store/event.h"
#include "worker/process/decide/stack_text.h"

namespace ddprun::agent {

namespace asio = boost::asio;

Inspection::Inspection(asio::any_io_executor executor, process::Reaper& reaper,
                       process::IoThread& disk, InspectionConfig config, Workers& workers,
                       std::function<void(rendezvous::Findings)> on_found)
    : config_(std::move(config)),
      disk_(disk),
      workers_(workers),
      on_found_(std::move(on_found)),
      stacks_(reaper, disk, config_.tools, workers),
      timer_(executor),
      tasks_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }) {}

void Inspection::begin(std::string in) {
  tasks_.spawn(look(std::move(in), ++number_));
}

std::set<pid_t> Inspection::interrupt() {
  ++number_;
  timer_.cancel();
  return stacks_.interrupt();
}

asio::awaitable<void> Inspection::stop() {
  tasks_.cancel();
  co_await tasks_.join();
}

asio::awaitable<void> Inspection::look(std::string in, int number) {
  const MonoTime until = mono_now() + config_.limit;
  auto seen = co_await stacks_.look(StackReader::Place::LogFolder, {}, until);
  if (!seen || number != number_) co_return;
  timer_.expires_at(until);
  co_await store::wait_for(timer_);
  if (number != number_) co_return;
  auto stderr_lines = std::make_shared<StderrLines>();
  std::map<int, std::string> folders;
  for (const auto& [local_rank, worker] : seen->workers)
    if (!worker.folder.empty()) folders[local_rank] = worker.folder;
  std::function<void()> read = [stderr_lines, folders = std::move(folders)] {
    for (const auto& [local_rank, folder] : folders)
      (*stderr_lines)[local_rank] = last_stderr_lines(folder);
  };
  co_await disk_.run_and_wait("read what the workers have written", std::move(read));
  if (number == number_) on_found_(judge(in, *seen, *stderr_lines));
}

rendezvous::Findings Inspection::judge(const std::string& in, const SeenWorkers& seen,
                                       const StderrLines& stderr_lines) const {
  rendezvous::Findings findings;
  for (const RunningWorker& worker : workers_.running()) {
    auto known = seen.workers.find(worker.local_rank);
    if (known == seen.workers.end()) continue;
    const SeenWorker& it = known->second;
    auto written = stderr_lines.find(worker.local_rank);
    bool has_timed_out = (written != stderr_lines.end() && timed_out_wait(written->second)) ||
                         (worker.stderr_lines && timed_out_wait(worker.stderr_lines()));
    findings.workers.push_back(
        finding_of({.rank = worker.rank,
                    .pid = worker.pid,
                    .activity = process::activity_of(it.native, it.python, it.doing),
                    .has_timed_out = has_timed_out},
                   in));
  }
  limit(findings);
  return findings;
}

}  // namespace ddprun::agent
