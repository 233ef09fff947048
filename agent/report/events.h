// SPDX-License-Identifier: BSD-3-Clause
//
// Events in torchelastic's form (torch 2.15, torch/distributed/elastic/events/api.py and
// agent/server/api.py), one JSON object a line.  Pure.
//
//   {"name": "torchelastic.worker.status.START", "source": "WORKER", "timestamp": 1763733600123,
//    "metadata": {"run_id": ..., "global_rank": 3, ..., "metadata": "{\"local_rank\": [1], ...}"}}
//
// As there, "metadata" within the metadata is a string of JSON, whose worker's fields are lists of
// one.  The timestamp, in milliseconds, is ours: torchelastic leaves it 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/base/time.h"

namespace ddprun::agent {

// What stays the same for all events of an agent in one round.
struct EventContext {
  std::string run_id;
  std::string role;
  std::string hostname;
  std::string rdzv_backend;
  std::string entry_point;  // the script's name
  int group_rank = 0;
  int group_world_size = 1;
  int role_world_size = 1;
  int restart_count = 0;
};

struct EventWorker {
  int rank = 0;
  int local_rank = 0;
  int role_rank = 0;
  int pid = 0;
  std::optional<int> exit_code;  // negative for a signal, as Python's subprocess has it
};

struct EventFacts {
  std::string state;                  // RENDEZVOUS, START, SUCCEEDED, FAILED, TERMINATED, ...
  std::optional<EventWorker> worker;  // of source WORKER; else AGENT
  std::optional<Duration> duration;   // of the change
  std::string raw_error;              // of error.json, or our words; may be empty
  Duration total_run_time{};
  WallTime at{};
};

// The script's name in a worker's command: what follows the interpreter and its options, else the
// program itself.
std::string entry_point(const std::vector<std::string>& command);

// One line, with its line end.
std::string to_event_line(const EventContext& context, const EventFacts& facts);

}  // namespace ddprun::agent
