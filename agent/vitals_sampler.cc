// SPDX-License-Identifier: BSD-3-Clause
#include "agent/vitals_sampler.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/hang_monitor.h"
#include "store/clock.h"
#include "store/event.h"
#include "worker/process/proc_files.h"
#include "worker/process/process_stats.h"
#include "worker/process/text_file.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

// Of a heartbeat file, which may be larger, and of the end of a log file.
constexpr std::size_t kMostHeartbeat = 4096;
constexpr std::size_t kEndOfLog = 1024;

constexpr char kEnded = '-';  // WorkerVitals::state

// What one look needs, so that it depends on nothing that may go meanwhile.
struct Subject {
  WorkerSample sample;
  std::string folder;  // of its logs; empty: none
  bool wants_line = false;
};

std::uint64_t rss_kib_of(pid_t pid) {
  std::string statm = process::text_of_process(pid, "statm");
  std::size_t space = statm.find(' ');
  if (space == std::string::npos) return 0;
  std::uint64_t pages = std::strtoull(statm.c_str() + space, nullptr, 10);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 1024;
}

void look_at_logs(Subject& subject) {
  WorkerSample& sample = subject.sample;
  for (const char* name : {"/stdout.log", "/stderr.log"}) {
    struct stat info {};
    if (::stat((subject.folder + name).c_str(), &info) != 0) continue;
    sample.output_bytes += static_cast<std::uint64_t>(info.st_size);
    if (!subject.wants_line || !sample.last_line.empty()) continue;
    auto end = process::end_of_regular_file(subject.folder + name, kEndOfLog);
    if (end) sample.last_line = last_line_of(*end);
  }
}

void look_at_heartbeat(Subject& subject) {
  std::string path = heartbeat_path(subject.folder);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return;
  auto touched = WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::seconds(info.st_mtim.tv_sec) + std::chrono::nanoseconds(info.st_mtim.tv_nsec)));
  subject.sample.heartbeat_age = wall_now() - touched;
  auto text = process::text_of_regular_file(path, kMostHeartbeat);
  if (text) subject.sample.step = step_in(*text);
}

void look_at_resources(std::vector<Subject>& subjects, Nvml& nvml) {
  auto gpus = nvml.by_process();
  for (Subject& subject : subjects) {
    WorkerSample& sample = subject.sample;
    sample.cpu_time = process::stats_of(sample.pid).cpu_time;
    sample.rss_kib = rss_kib_of(sample.pid);
    if (auto gpu = gpus.find(sample.pid); gpu != gpus.end()) sample.gpu = gpu->second;
  }
}

void look_at_progress(std::vector<Subject>& subjects) {
  for (Subject& subject : subjects) {
    subject.sample.state = process::stat_of(subject.sample.pid).state;
    if (subject.folder.empty()) continue;
    look_at_logs(subject);
    look_at_heartbeat(subject);
  }
}

}  // namespace

VitalsSampler::VitalsSampler(asio::any_io_executor executor, VitalsConfig config, Workers& workers,
                             std::function<void(std::string)> say)
    : config_(config),
      workers_(workers),
      say_(std::move(say)),
      thread_(executor, [](const process::IoThread::Stall&) {}),  // the vitals' age says it
      timer_(executor),
      tasks_(executor) {}

void VitalsSampler::start(std::uint64_t round) {
  if (config_.period <= Duration::zero()) return;
  book_.begin(round, mono_now());
  is_running_ = true;
  timer_.expires_after(config_.period);
  if (!std::exchange(has_watched_, true)) tasks_.spawn(watch());
}

void VitalsSampler::workers_stop() {
  is_running_ = false;
  timer_.expires_at(MonoTime::max());
}

asio::awaitable<void> VitalsSampler::stop() {
  tasks_.cancel();
  co_await tasks_.join();
}

asio::awaitable<void> VitalsSampler::watch() {
  for (;;) {
    co_await store::wait_for(timer_);
    if (!is_running_ || mono_now() < timer_.expiry()) continue;
    timer_.expires_after(config_.period);
    co_await look();
  }
}

asio::awaitable<void> VitalsSampler::look() {
  auto subjects = std::make_shared<std::vector<Subject>>();
  const bool wants_line = config_.shares_last_lines && !config_.is_progress_only;
  for (const RunningWorker& worker : workers_.running()) {
    Subject subject{.sample = {.local_rank = worker.local_rank,
                               .pid = worker.pid,
                               .output_bytes = worker.output_bytes ? worker.output_bytes() : 0,
                               .is_output_seen = worker.is_output_seen},
                    .folder = worker.folder,
                    .wants_line = wants_line};
    if (wants_line && worker.last_line) subject.sample.last_line = worker.last_line();
    subjects->push_back(std::move(subject));
  }
  std::string call = "look at the workers";
  std::function<void()> work = [subjects, nvml = config_.is_progress_only ? nullptr : nvml_] {
    if (nvml) look_at_resources(*subjects, *nvml);
    look_at_progress(*subjects);
  };
  co_await thread_.run_and_wait(std::move(call), std::move(work));
  if (!is_running_) co_return;
  std::vector<WorkerSample> samples;
  for (Subject& subject : *subjects) samples.push_back(std::move(subject.sample));
  for (const RunningWorker& worker : workers_.started()) {
    if (std::ranges::find(samples, worker.local_rank, &WorkerSample::local_rank) == samples.end())
      samples.push_back({.local_rank = worker.local_rank, .pid = worker.pid, .state = kEnded});
  }
  rendezvous::Vitals vitals = book_.take(samples, mono_now());
  if (config_.keeps_logs) vitals.log_folder = workers_.log_path();
  say_(encode(vitals));
}

}  // namespace ddprun::agent
