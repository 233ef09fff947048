// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks of a run as threads of the test: each joins a store that the test hosts, as under an agent,
// and runs the same body.  Processes are for the tests that kill (kill_test.py).
#pragma once

#include <doctest/doctest.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "worker/ddp/error.h"
#include "worker/ddp/process_group.h"

namespace ddprun::ddp::test {

// A store on a port that the kernel chose.
class StoreHost {
 public:
  StoreHost() : store_(c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options())) {}
  std::uint16_t port() const { return static_cast<std::uint16_t>(store_->getPort()); }

 private:
  static c10d::TCPStoreOptions options() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    return options;
  }
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

inline worker::WorkerEnv env_of(int rank, int world_size, std::uint16_t port) {
  worker::WorkerEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = world_size;
  env.master = {.host = "127.0.0.1", .port = port};
  env.use_agent_store = true;
  return env;
}

// Runs `body` as the `ranks` of a world of `world_size`, each in a thread of its own, and returns
// what went wrong on each, "" where nothing did.
inline std::vector<std::string> run_ranks(const std::vector<int>& ranks, int world_size,
                                          const ProcessGroupOptions& options,
                                          const std::function<void(ProcessGroup)>& body) {
  StoreHost host;
  std::vector<std::string> problems(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        body(init_process_group(options, env_of(ranks[i], world_size, host.port())));
      } catch (const c10::Error& error) {
        problems[i] = error.what_without_backtrace();
      } catch (const std::exception& error) {
        problems[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return problems;
}

// The same; the time-out keeps a hang from lasting.
inline std::vector<std::string> run_ranks(
    const std::vector<int>& ranks, int world_size, const std::function<void(ProcessGroup)>& body,
    std::chrono::milliseconds timeout = std::chrono::seconds(60),
    const std::optional<std::string>& backend = std::nullopt) {
  return run_ranks(ranks, world_size, ProcessGroupOptions{.backend = backend, .timeout = timeout},
                   body);
}

inline std::vector<std::string> run_ranks(int world_size,
                                          const std::function<void(ProcessGroup)>& body) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.push_back(rank);
  return run_ranks(ranks, world_size, body);
}

// The same for a body that must succeed everywhere.
inline void on_ranks(int world_size, const std::function<void(ProcessGroup)>& body) {
  std::vector<std::string> problems = run_ranks(world_size, body);
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    CAPTURE(rank);
    CHECK(problems[rank] == "");
  }
}

// Thrown by expect(), since doctest's own macros belong to the test's thread.
struct Unexpected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void expect(bool condition, const std::string& claim) {
  if (!condition) throw Unexpected("expected that " + claim);
}

// What `action` throws as a DdpError, in words; "" when it does not.
inline std::string problem_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const DdpError& error) {
    return error.what();
  }
  return "";
}

}  // namespace ddprun::ddp::test
