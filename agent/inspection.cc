// SPDX-License-Identifier: BSD-3-Clause
#include "agent/inspection.h"

#include <utility>

#include "agent/decide/wait_words.h"
#include "agent/decide/whereabouts.h"
#include "agent/local_worker.h"
#include "store/clock.h"
#include "store/event.h"
#include "worker/process/decide/stack_text.h"
#include "worker/process/proc_files.h"

namespace ddprun::agent {

namespace asio = boost::asio;

namespace {

// This share of a processor for the main thread shows that it works, on a machine that is busy,
// too.
constexpr double kBusy = 0.2;

// Who has closed its connections ends, and those that wait for it as well: Python takes a moment.
constexpr Duration kGlance = std::chrono::milliseconds(10);

// In which a worker was that has failed since, and is about to end.  Who has lost a peer knows no
// more than another that has lost one.
std::optional<rendezvous::TimedOutWait> own_wait(const std::vector<std::string>& lines,
                                                 const rendezvous::TimedOutWait& wait) {
  std::optional<rendezvous::TimedOutWait> own = timed_out_wait(lines);
  if (!own && !wait.has_lost_peer) own = lost_peer(lines);
  return own;
}

}  // namespace

Inspection::Inspection(asio::any_io_executor executor, process::Reaper& reaper,
                       process::IoThread& disk, InspectionConfig config, Workers& workers,
                       std::function<void(rendezvous::Findings)> on_found)
    : config_(std::move(config)),
      disk_(disk),
      workers_(workers),
      on_found_(std::move(on_found)),
      stacks_(reaper, disk, config_.tools, workers),
      timer_(executor),
      tasks_(executor) {}

void Inspection::begin(rendezvous::TimedOutWait wait) {
  tasks_.spawn(look(std::move(wait), ++number_));
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

Inspection::CpuTimes Inspection::cpu_times() const {
  CpuTimes times;
  for (const RunningWorker& worker : workers_.running())
    times[worker.pid] = process::main_thread_cpu_time(worker.pid);
  return times;
}

asio::awaitable<void> Inspection::look(rendezvous::TimedOutWait wait, int number) {
  SeenWorkers seen;
  std::set<pid_t> busy;
  if (wait.has_lost_peer) {  // what they have written is enough, and who has ended
    co_await until_all_end(config_.end_limit, number);
    if (number != number_) co_return;
    for (const RunningWorker& worker : workers_.running())
      seen.workers[worker.local_rank] = {
          .rank = worker.rank, .pid = worker.pid, .folder = worker.folder};
  } else {
    const MonoTime began = mono_now();
    const MonoTime until = began + config_.limit;
    const CpuTimes before = cpu_times();
    auto looked = co_await stacks_.look(StackReader::Texts::Kept, {}, until);
    if (!looked || number != number_) co_return;
    seen = std::move(*looked);
    timer_.expires_at(until);
    co_await store::wait_for(timer_);
    if (number != number_) co_return;
    busy = busy_since(before, began);
  }
  auto stderr_lines = std::make_shared<StderrLines>();
  std::map<int, std::string> folders;
  for (const auto& [local_rank, worker] : seen.workers)
    if (!worker.folder.empty()) folders[local_rank] = worker.folder;
  std::function<void()> read = [stderr_lines, folders = std::move(folders)] {
    for (const auto& [local_rank, folder] : folders)
      (*stderr_lines)[local_rank] = last_stderr_lines(folder);
  };
  co_await disk_.run_and_wait("read what the workers have written", std::move(read));
  if (number == number_) on_found_(judge(wait, seen, *stderr_lines, busy));
}

asio::awaitable<void> Inspection::until_all_end(Duration limit, int number) {
  const MonoTime until = mono_now() + limit;
  while (number == number_ && !workers_.running().empty() && mono_now() < until) {
    timer_.expires_after(kGlance);
    co_await store::wait_for(timer_);
  }
}

std::set<pid_t> Inspection::busy_since(const CpuTimes& before, MonoTime began) const {
  std::set<pid_t> busy;
  for (const auto& [pid, time] : cpu_times()) {
    auto known = before.find(pid);
    bool is_busy = known != before.end() && time - known->second >= kBusy * (mono_now() - began);
    if (is_busy) busy.insert(pid);
  }
  return busy;
}

rendezvous::Findings Inspection::judge(const rendezvous::TimedOutWait& wait,
                                       const SeenWorkers& seen, const StderrLines& stderr_lines,
                                       const std::set<pid_t>& busy) const {
  rendezvous::Findings findings;
  for (const RunningWorker& worker : workers_.running()) {
    auto known = seen.workers.find(worker.local_rank);
    if (known == seen.workers.end()) continue;
    const SeenWorker& it = known->second;
    auto written = stderr_lines.find(worker.local_rank);
    std::optional<rendezvous::TimedOutWait> timed_out;
    if (written != stderr_lines.end()) timed_out = own_wait(written->second, wait);
    if (!timed_out && worker.stderr_lines) timed_out = own_wait(worker.stderr_lines(), wait);
    findings.workers.push_back(
        finding_of({.rank = worker.rank,
                    .pid = worker.pid,
                    .activity = process::activity_of(it.native, it.python, it.doing),
                    .timed_out = std::move(timed_out),
                    .is_busy = busy.contains(worker.pid)},
                   wait));
  }
  limit(findings);
  return findings;
}

}  // namespace ddprun::agent
