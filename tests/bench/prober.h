// SPDX-License-Identifier: BSD-3-Clause
//
// A client in a thread of its own that pings all the time, and so notices when the server is busy
// with somebody else.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace ddprun::bench {

class Prober {
 public:
  // Returns when it has begun.
  explicit Prober(std::uint16_t port);

  // Ends it; answers how long each ping took, in milliseconds.
  std::vector<double> stop();

 private:
  std::vector<double> latencies_ms_;
  std::atomic<bool> is_probing_ = false;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

}  // namespace ddprun::bench
