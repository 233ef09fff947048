// SPDX-License-Identifier: BSD-3-Clause
//
// Makes a node's vitals from what was seen of its workers: what has changed since the look before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/vitals.h"
#include "store/base/time.h"

namespace ddprun::agent {

// One worker, as it was seen.
struct WorkerSample {
  int local_rank = 0;
  int pid = 0;
  char state = '?';
  Duration cpu_time{};  // ever, with its children
  std::uint64_t rss_kib = 0;
  std::uint64_t output_bytes = 0;           // of this attempt
  bool is_output_seen = true;               // false: it may have written more
  std::optional<Duration> heartbeat_age{};  // since its heartbeat file was touched
  std::optional<std::int64_t> step{};       // the number in that file
  std::optional<rendezvous::GpuVitals> gpu{};
  std::string last_line{};
};

class VitalsBook {
 public:
  // The workers of another round run.
  void begin(std::uint64_t round, MonoTime now);
  rendezvous::Vitals take(const std::vector<WorkerSample>& samples, MonoTime now);

 private:
  struct Before {
    int pid = 0;
    Duration cpu_time{};
    std::uint64_t output_bytes = 0;
    std::optional<MonoTime> wrote_at{};  // when output was last seen to be more
  };
  std::map<int, Before> before_;  // by local rank
  MonoTime looked_at_{};
  std::uint64_t round_ = 0;
  std::uint64_t number_ = 0;
};

// "4711" of a heartbeat file that begins so; nullopt for one that holds no number.
std::optional<std::int64_t> step_in(std::string_view heartbeat);

// The last line of a text that is not empty.
std::string last_line_of(std::string_view text);

}  // namespace ddprun::agent
