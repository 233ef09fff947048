// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>

namespace ddprun::test {

// Runs `loop` until `is_reached`, or until `limit` has passed; returns whether it was reached.
inline bool run_until(boost::asio::io_context& loop, const std::function<bool()>& is_reached,
                      std::chrono::steady_clock::duration limit = std::chrono::seconds(20)) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  loop.restart();
  while (!is_reached()) {
    if (loop.run_one_until(deadline) == 0) return is_reached();
  }
  return true;
}

}  // namespace ddprun::test
