// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/vitals_book.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ddprun::agent {
namespace {

// Of a worker that was not seen before, it is not known when it had that time.
int percent(Duration cpu_time, Duration passed) {
  if (passed <= Duration::zero()) return 0;
  double part = static_cast<double>(cpu_time.count()) / static_cast<double>(passed.count());
  return static_cast<int>(std::lround(std::clamp(part, 0.0, 1e6) * 100));
}

std::int64_t milliseconds(Duration duration) {
  return std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

void VitalsBook::begin(std::uint64_t round, MonoTime now) {
  before_.clear();
  looked_at_ = now;
  round_ = round;
}

rendezvous::Vitals VitalsBook::take(const std::vector<WorkerSample>& samples, MonoTime now) {
  rendezvous::Vitals vitals{.number = ++number_, .round = round_};
  for (const WorkerSample& sample : samples) {
    Before& before = before_[sample.local_rank];
    bool is_other = before.pid != sample.pid;
    if (is_other) before = {.pid = sample.pid};
    // The children of a worker that it has not waited for take their time with them.
    Duration used = std::max(sample.cpu_time - before.cpu_time, Duration::zero());
    if (sample.output_bytes > before.output_bytes) before.wrote_at = now;
    before.cpu_time = sample.cpu_time;
    before.output_bytes = sample.output_bytes;
    rendezvous::WorkerVitals worker{.local_rank = sample.local_rank,
                                    .state = sample.state,
                                    .pid = sample.pid,
                                    .cpu_percent = percent(used, now - looked_at_),
                                    .rss_kib = sample.rss_kib,
                                    .step = sample.step,
                                    .gpu = sample.gpu,
                                    .last_line = sample.last_line};
    if (sample.is_output_seen) {
      worker.output_bytes = sample.output_bytes;
      if (before.wrote_at) worker.output_age_ms = milliseconds(now - *before.wrote_at);
    }
    if (sample.heartbeat_age) worker.heartbeat_age_ms = milliseconds(*sample.heartbeat_age);
    vitals.workers.push_back(std::move(worker));
  }
  looked_at_ = now;
  return vitals;
}

std::optional<std::int64_t> step_in(std::string_view heartbeat) {
  std::int64_t step = 0;
  auto [end, error] = std::from_chars(heartbeat.data(), heartbeat.data() + heartbeat.size(), step);
  bool is_number = error == std::errc() && step >= 0;
  bool is_whole = end == heartbeat.data() + heartbeat.size() || *end == '\n' || *end == ' ';
  return is_number && is_whole ? std::optional(step) : std::nullopt;
}

std::string last_line_of(std::string_view text) {
  std::size_t end = text.find_last_not_of("\r\n \t");
  if (end == std::string_view::npos) return "";
  text = text.substr(0, end + 1);
  std::size_t begin = text.find_last_of("\r\n");
  return std::string(begin == std::string_view::npos ? text : text.substr(begin + 1));
}

}  // namespace ddprun::agent
