// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/store_barrier.h"

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "worker/ddp/error.h"
#include "worker/shm/decide/format.h"

namespace ddprun::ddp {
namespace {

std::string rank_key(const std::string& name, int rank) {
  return name + "/rank/" + std::to_string(rank);
}

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kGeneration[] = "generation";  // how many there have been
constexpr char kRequests[] = "requests";      // of ranks for the number of the generation
constexpr char kAnswered[] = "answered";      // how many of them rank 0 has answered

std::string answer_key(std::int64_t request) {
  return "answer/" + std::to_string(request);
}

milliseconds left(Clock::time_point deadline) {
  const auto time = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::max(time, milliseconds(1));
}

// Says that this rank has come.  One key that the last to come sets, so that N ranks wait for N
// keys in all, not N times N.
void arrive(c10d::Store& store, const std::string& name, int rank, int world_size) {
  const std::vector<std::uint8_t> here{'1'};
  store.set(rank_key(name, rank), here);
  if (store.add(name + "/count", 1) == world_size) store.set(name + "/complete", here);
}

DdpError missing_error(const std::vector<int>& ranks, int world_size, milliseconds timeout) {
  return DdpError(format_ranks(ranks) + " of " + std::to_string(world_size) +
                  " did not come within " + format_seconds(timeout));
}

// Throws unless all have come.
void throw_if_missing(c10d::Store& store, const std::string& name, int world_size,
                      milliseconds timeout) {
  std::vector<int> missing;
  for (int other = 0; other < world_size; ++other) {
    if (!store.check({rank_key(name, other)})) missing.push_back(other);
  }
  if (!missing.empty()) throw missing_error(missing, world_size, timeout);
}

void wait_for_all(c10d::Store& store, const std::string& name, int world_size,
                  Clock::time_point deadline, milliseconds timeout) {
  try {
    store.wait({name + "/complete"}, left(deadline));
  } catch (const c10::Error&) {
    throw_if_missing(store, name, world_size, timeout);
    throw;
  }
}

// Rank 0's part: answers every request until all ranks have come.  A request may be a dead
// program's, and its answer is then never read.
void answer_requests(c10d::Store& store, const std::string& generation, const std::string& name,
                     int world_size, Clock::time_point deadline, milliseconds timeout) {
  constexpr milliseconds kLongestPause{20};
  std::int64_t answered = store.add(kAnswered, 0);
  for (milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    const std::int64_t requests = store.add(kRequests, 0);
    for (std::int64_t request = answered + 1; request <= requests; ++request) {
      store.set(answer_key(request), generation);
    }
    if (requests > answered) answered = store.add(kAnswered, requests - answered);
    if (store.check({name + "/complete"})) return;
    if (Clock::now() >= deadline) throw_if_missing(store, name, world_size, timeout);
    std::this_thread::sleep_for(pause);
  }
}

// Another rank's part: the number that rank 0 answers with.
std::string ask_for_generation(c10d::Store& store, int world_size, Clock::time_point deadline,
                               milliseconds timeout) {
  const std::string key = answer_key(store.add(kRequests, 1));
  try {
    store.wait({key}, left(deadline));
  } catch (const c10::Error&) {
    if (store.check({key})) throw;
    throw missing_error({0}, world_size, timeout);
  }
  const std::vector<std::uint8_t> answer = store.get(key);
  store.deleteKey(key);
  return {answer.begin(), answer.end()};
}

}  // namespace

void store_barrier(c10d::Store& store, const std::string& name, int rank, int world_size,
                   milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  arrive(store, name, rank, world_size);
  wait_for_all(store, name, world_size, deadline, timeout);
}

std::string join_generation(c10d::Store& store, int rank, int world_size, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::string generation;
  if (rank == 0) {
    generation = "generation_" + std::to_string(store.add(kGeneration, 1));
    arrive(store, generation + "/join", rank, world_size);
    if (world_size == 1) return generation;
    answer_requests(store, generation, generation + "/join", world_size, deadline, timeout);
    return generation;
  }
  // Rank 0 may still wait in the group that this rank has just left.
  for (;; std::this_thread::sleep_for(milliseconds(1))) {
    generation = ask_for_generation(store, world_size, deadline, timeout);
    if (store.add(generation + "/claim/" + std::to_string(rank), 1) == 1) break;
    if (Clock::now() >= deadline) throw missing_error({0}, world_size, timeout);
  }
  arrive(store, generation + "/join", rank, world_size);
  wait_for_all(store, generation + "/join", world_size, deadline, timeout);
  return generation;
}

void clear_store_barrier(c10d::Store& store, const std::string& name, int rank) {
  store.deleteKey(rank_key(name, rank));
  if (rank != 0) return;
  store.deleteKey(name + "/count");
  store.deleteKey(name + "/complete");
}

}  // namespace ddprun::ddp
