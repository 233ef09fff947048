// SPDX-License-Identifier: BSD-3-Clause
//
// The pages about the server's state that it serves over HTTP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/time.h"
#include "store/decide/expected_clients.h"

namespace ddprun::store {

// What the server counts.
struct Metrics {
  std::size_t connections = 0;
  std::size_t keys = 0;
  std::size_t bytes = 0;       // of keys, values and items, and what keeping them costs
  std::size_t held_bytes = 0;  // of requests that have not arrived in full
  std::size_t waits = 0;
  std::size_t namespaces = 0;                 // the named ones
  std::uint64_t accepted = 0;                 // connections, ever
  std::uint64_t refused = 0;                  // connections from addresses not allowed, ever
  std::uint64_t turned_away = 0;              // connections beyond their greatest number, ever
  std::uint64_t disconnected = 0;             // clients that broke a rule or a limit, ever
  std::array<std::uint64_t, 256> requests{};  // by operation, ever
};

// One wait that has not been answered.
struct Waiter {
  std::string peer;                  // "10.0.0.7:40112"
  std::optional<std::uint32_t> pid;  // of its first PING; torch's client sends its process id
  std::string namespace_name;        // empty for the common one
  std::vector<std::string> missing;  // the first few of the names that it waits for
  std::size_t missing_count = 0;
  Duration since{};
};

// How many clients have connected, as far as that can be known.
struct JoinProgress {
  std::string joined;  // the counter at "init/"
  std::optional<std::int64_t> world_size{};
  std::size_t expected_count = 0;
  std::size_t missing_count = 0;
  std::vector<ExpectedClients::Missing> missing{};  // the first of them
};

// Prometheus's text form.
std::string metrics_page(const Metrics& metrics);

// The same in OpenMetrics: counters are declared without their "_total", and the end is marked.
std::string to_open_metrics(std::string_view metrics);

// JSON: the metrics, the announced clients that are missing, and the waits.  It ends with "}\n".
std::string status_page(const Metrics& metrics, const JoinProgress& join_progress,
                        const std::vector<Waiter>& waiters);

}  // namespace ddprun::store
