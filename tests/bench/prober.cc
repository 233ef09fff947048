// SPDX-License-Identifier: BSD-3-Clause
#include "tests/bench/prober.h"

#include "tests/bench/load.h"

namespace ddprun::bench {
using namespace store;

Prober::Prober(std::uint16_t port)
    : thread_([this, port] {
        Load load(port);
        load.greet(1);
        std::string ping = bytes_of({request::Ping{1}});
        load.on_turn = [&](Connection& connection) {
          latencies_ms_.push_back(seconds_since(connection.began) * 1e3);
          load.send(connection, ping, 4);
        };
        load.send(load[0], ping, 4);
        is_probing_ = true;
        load.run_until([this] { return is_over_.load(); });
      }) {
  while (!is_probing_) std::this_thread::yield();
}

std::vector<double> Prober::stop() {
  is_over_ = true;
  thread_.join();
  return latencies_ms_;
}

}  // namespace ddprun::bench
