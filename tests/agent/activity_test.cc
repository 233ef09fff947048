// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/activity.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

// Four workers, sampled once a second.
struct Node {
  ActivityLog activity{60s};
  std::vector<ActivitySample> workers{
      {.local_rank = 0}, {.local_rank = 1}, {.local_rank = 2}, {.local_rank = 3}};
  MonoTime now{};

  std::optional<HangVerdict> second() {
    now += 1s;
    return activity.look(workers, now);
  }
  // Lets up to `seconds` pass, with `live` in each; the verdict, where one came.
  template <class Live>
  std::optional<HangVerdict> pass(int seconds, Live live) {
    for (int i = 0; i < seconds; ++i) {
      live();
      if (auto verdict = second()) return verdict;
    }
    return std::nullopt;
  }
};

}  // namespace

TEST_SUITE("agent/decide/activity") {
  TEST_CASE("each sign of life counts") {
    Node node;
    CHECK_FALSE(node.pass(1000, [&] {
      node.workers[0].output_bytes += 1;
      node.workers[1].cpu_time += 30ms;
      node.workers[2].heartbeat_ns += 1;
      node.workers[3].cpu_time += 1s;
    }));
  }

  TEST_CASE("who waits for a slow disk works, and who reads a little now and then does not") {
    Node node;
    auto verdict = node.pass(1000, [&] {
      for (ActivitySample& worker : node.workers) worker.moved_bytes += kMovingBytes;
      node.workers[2].moved_bytes -= kMovingBytes / 2;  // what watches the machine
    });
    REQUIRE(verdict);
    CHECK(verdict->hung == std::vector{2});
  }

  TEST_CASE("bytes of a process that has ended are not missed") {
    Node node;
    node.workers[1].moved_bytes = 100 * kMovingBytes;
    CHECK_FALSE(node.pass(1000, [&] {
      for (ActivitySample& worker : node.workers) worker.cpu_time += 1s;
      if (node.now == MonoTime(10s)) node.workers[1].moved_bytes = 0;
      node.workers[1].cpu_time = 0s;
      node.workers[1].moved_bytes += 2 * kMovingBytes;
    }));
  }

  TEST_CASE("the CPU time of a process that has ended is not missed") {
    Node node;
    node.workers[1].cpu_time = 800s;
    CHECK_FALSE(node.pass(1000, [&] {
      if (node.now == MonoTime(10s)) node.workers[1].cpu_time = 0s;
      for (ActivitySample& worker : node.workers) worker.cpu_time += 1s;
    }));
  }

  TEST_CASE("one tick of the kernel's clock is no sign of life") {
    ActivityLog activity(8s);
    ActivitySample sample;
    MonoTime now{};
    std::optional<HangVerdict> verdict;
    for (int i = 0; i < 1000 && !verdict; ++i) {
      if (i % 10 == 0) sample.cpu_time += 10ms;
      now += 400ms;
      verdict = activity.look({sample}, now);
    }
    CHECK(verdict);
  }

  TEST_CASE("who gets little of a busy machine's CPU works all the same") {
    ActivityLog activity(1s);
    ActivitySample sample;
    MonoTime now{};
    for (int i = 0; i < 1000; ++i) {
      sample.cpu_time += 5ms;
      REQUIRE_FALSE(activity.look({sample}, now += 50ms));
    }
  }

  TEST_CASE("the time in which nobody looked, as after Ctrl-Z, does not count") {
    ActivityLog activity(60s);
    MonoTime now{};
    for (int second = 0; second <= 30; second += 3)
      CHECK_FALSE(activity.look({ActivitySample{}}, now = MonoTime(std::chrono::seconds(second))));
    CHECK_FALSE(activity.look({ActivitySample{}}, now += 1h));
    CHECK_FALSE(activity.look({ActivitySample{}}, now += 14s));
    CHECK(activity.look({ActivitySample{}}, now += 2s));
  }

  TEST_CASE("of two that are silent the one in D state keeps the other waiting") {
    ActivityLog activity(2s);
    std::vector<ActivitySample> samples = {{.local_rank = 0, .doing = "sleeping in futex_wait"},
                                           {.local_rank = 1, .doing = "in D state in nfs_wait"}};
    MonoTime now{};
    std::optional<HangVerdict> verdict;
    for (int i = 0; i < 100 && !verdict; ++i) verdict = activity.look(samples, now += 100ms);
    REQUIRE(verdict);
    CHECK(verdict->hung == std::vector{1});
  }

  TEST_CASE("who is silent while the others work is hung, after the timeout and not before") {
    Node node;
    auto verdict = node.pass(1000, [&] {
      for (int i : {0, 1, 3}) node.workers[static_cast<std::size_t>(i)].cpu_time += 1s;
      node.workers[2].cpu_time += 1ms;  // a watchdog thread
      node.workers[2].doing = "sleeping in hrtimer_nanosleep";
    });
    REQUIRE(verdict);
    CHECK(node.now == MonoTime(61s));
    CHECK(verdict->hung == std::vector{2});
    CHECK(describe(*verdict) ==
          "hung: no output, CPU time or heartbeat for 60 s; it was sleeping in hrtimer_nanosleep, "
          "while ranks 0, 1, 3 were at work");
  }

  TEST_CASE("nothing is said of output that nobody sees") {
    Node node;
    node.workers[2].is_output_seen = false;
    auto verdict = node.pass(1000, [&] {
      for (int i : {0, 1, 3}) node.workers[static_cast<std::size_t>(i)].cpu_time += 1s;
    });
    REQUIRE(verdict);
    CHECK(describe(*verdict) ==
          "hung: no CPU time or heartbeat for 60 s (its output is not seen without --tee), while "
          "ranks 0, 1, 3 were at work");
  }

  TEST_CASE(
      "of silent workers the one that does something else hangs, even if it fell silent later") {
    Node node;
    for (ActivitySample& worker : node.workers) worker.doing = "sleeping in futex_wait";
    node.workers[3].doing = "sleeping in hrtimer_nanosleep";
    node.pass(10, [&] { node.workers[3].output_bytes += 1; });
    auto verdict = node.pass(1000, [] {});
    REQUIRE(verdict);
    CHECK(verdict->hung == std::vector{3});
    CHECK(verdict->silent == std::vector{0, 1, 2, 3});
    CHECK(describe(*verdict) ==
          "hung: no output, CPU time or heartbeat for 51 s; it was sleeping in hrtimer_nanosleep, "
          "while ranks 0..2 were sleeping in futex_wait");
  }

  TEST_CASE("without a difference all are named, the longest silent first") {
    Node node;
    node.pass(5, [&] {
      for (int i : {0, 1, 3}) node.workers[static_cast<std::size_t>(i)].output_bytes += 1;
    });
    auto verdict = node.pass(1000, [] {});
    REQUIRE(verdict);
    CHECK(verdict->hung == std::vector{2, 0, 1, 3});
    CHECK(describe(*verdict) ==
          "hung: no output, CPU time or heartbeat for 60 s, while ranks 0, 1, 3 were silent "
          "as well; which of them holds up the rest is not known: compare their stacks");
  }

  TEST_CASE("two against two is no majority") {
    Node node;
    for (std::size_t i : {0U, 1U}) node.workers[i].doing = "a";
    auto verdict = node.pass(1000, [] {});
    REQUIRE(verdict);
    CHECK(verdict->hung.size() == 4);
  }

  TEST_CASE("who has a heartbeat is judged by it alone") {
    Node node;
    auto verdict = node.pass(1000, [&] {
      for (ActivitySample& worker : node.workers) worker.cpu_time += 1s;
      node.workers[1].heartbeat_ns = 7;
    });
    REQUIRE(verdict);
    CHECK(verdict->hung == std::vector{1});
    CHECK(describe(*verdict) == "hung: no heartbeat for 60 s, while ranks 0, 2, 3 were at work");
  }

  TEST_CASE("who waits in a collective is not the one that hangs") {
    HangVerdict both{.hung = {0, 1},
                     .silent = {0, 1},
                     .doing = {{0, "sleeping in futex"}, {1, "sleeping in nanosleep"}},
                     .silence = 60s};
    HangVerdict one = without_waiting(both, {{0, true}});
    CHECK(one.is_clear);
    CHECK(one.hung == std::vector{1});
    CHECK(describe(one) ==
          "hung: no output, CPU time or heartbeat for 60 s; it was sleeping in nanosleep, while "
          "rank 0 was waiting in a collective");
    CHECK(without_waiting(both, {}) == both);
    CHECK_FALSE(without_waiting(both, {{0, false}, {1, false}}).is_clear);
    HangVerdict alone{.hung = {0}, .silent = {0}, .doing = {{0, "sleeping in nanosleep"}}};
    CHECK_FALSE(without_waiting(alone, {}).is_clear);
    CHECK_FALSE(without_waiting(alone, {{0, true}}).is_clear);
    CHECK(without_waiting(alone, {{0, false}}).is_clear);
    both.hung = {0};  // as the minority
    both.is_clear = true;
    CHECK(without_waiting(both, {{0, true}, {1, false}}).hung == std::vector{1});
    HangVerdict none = without_waiting(both, {{0, true}, {1, true}});
    CHECK_FALSE(none.is_clear);
    CHECK(describe(none) ==
          "hung: no output, CPU time or heartbeat for 60 s; it was waiting in a collective, while "
          "rank 1 was waiting in a collective");
    none.busy = {2, 3};
    CHECK(describe(none).ends_with(", while ranks 2, 3 were at work"));
  }

  TEST_CASE("a worker that has ended is not silent") {
    Node node;
    CHECK_FALSE(node.pass(50, [] {}));
    node.workers.clear();
    CHECK_FALSE(node.pass(100, [] {}));
  }
}
