// SPDX-License-Identifier: BSD-3-Clause
#include "tests/bench/scenarios.h"

namespace ddprun::bench {
using namespace store;

void idle_memory(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(100);  // what comes once is not counted
  double before = resident_bytes(options.pid);
  load.greet(options.connections);
  double bytes = resident_bytes(options.pid) - before;
  print({{"bytes_per_connection", bytes / double(options.connections)}});
}

void key_memory(const Options& options) {
  constexpr int kKeys = 100'000;
  constexpr int kBatch = 1000;
  Load load(options.port);
  load.greet(1);
  std::string value(1024, 'v');
  auto for_all = [&](auto make, std::size_t reply_bytes) {
    for (int i = 0; i < kKeys; i += kBatch) {
      std::string bytes;
      for (int j = i; j < i + kBatch; ++j) {
        std::string key = "/memory" + options.tag + std::to_string(j);
        encode(make(key), bytes);
      }
      encode(request::Ping{1}, bytes);
      load.ask(load[0], bytes, 4 + reply_bytes * kBatch);
    }
  };
  double empty = resident_bytes(options.pid);
  for_all([&](const std::string& key) { return Request(request::Set{key, value}); }, 0);
  double full = resident_bytes(options.pid);
  for_all([](const std::string& key) { return Request(request::DeleteKey{key}); }, 8);
  double after = resident_bytes(options.pid);
  print({{"bytes_per_key", (full - empty) / kKeys},
         {"given_back_percent", 100 * (full - after) / (full - empty)}});
}

}  // namespace ddprun::bench
