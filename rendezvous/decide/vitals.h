// SPDX-License-Identifier: BSD-3-Clause
//
// What a node says every few seconds about its workers, for people.  No decision depends on it.
// Its text lies under keys::vitals() in the store, where the next one replaces it; who shows a page
// reads it.  rendezvous/PROTOCOL.md has the form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::rendezvous {

// Of the memory and the processor of a GPU that a worker uses.
struct GpuVitals {
  std::uint64_t used_mib = 0;
  std::uint64_t total_mib = 0;
  std::optional<int> busy_percent{};  // of the busiest one that says so

  friend bool operator==(const GpuVitals&, const GpuVitals&) = default;
};

struct WorkerVitals {
  int local_rank = 0;
  char state = '?';  // as in /proc/PID/stat, of its main thread: R, S, D, T, Z; '-': it has ended
  int pid = 0;
  int cpu_percent = 0;  // of one core, with its children, since the vitals before
  std::uint64_t rss_kib = 0;
  std::optional<std::uint64_t> output_bytes{};     // of this attempt; nullopt: nobody sees them all
  std::optional<std::int64_t> output_age_ms{};     // since they last became more; nullopt: none yet
  std::optional<std::int64_t> heartbeat_age_ms{};  // since it last touched its heartbeat file
  std::optional<std::int64_t> step{};              // the number that this file holds
  std::optional<GpuVitals> gpu{};
  std::string last_line{};  // only where the user wants it shown

  friend bool operator==(const WorkerVitals&, const WorkerVitals&) = default;
};

struct Vitals {
  std::uint64_t number = 0;  // counts those of this agent
  std::uint64_t round = 0;
  std::string log_folder{};  // of the node, where its logs are kept; empty: nowhere
  std::vector<WorkerVitals> workers{};

  friend bool operator==(const Vitals&, const Vitals&) = default;
};

// A longer text is not read, and of a longer line the beginning is kept.
inline constexpr std::size_t kMaxVitalsBytes = 256 * 1024;
inline constexpr std::size_t kMaxLastLine = 200;
// A longer path is not said: its beginning alone would lead nowhere.
inline constexpr std::size_t kMaxLogFolder = 1024;

std::string encode(const Vitals& vitals);

// What strangers may have written: nullopt for what is no vitals; of workers beyond `most` nothing
// is read; texts are quoted.
std::optional<Vitals> decode_vitals(std::string_view text, std::size_t most);

}  // namespace ddprun::rendezvous
