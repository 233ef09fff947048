// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/hang.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun;
using namespace ddprun::agent;
using namespace ddprun::agent::hang;
using namespace std::chrono_literals;

namespace {

// The workers of one node, which hang after 10 s of silence; they are looked at twice a second.
struct Watched {
  hang::Config config{.timeout = 10s};
  hang::State state{config};
  MonoTime now{};
  std::vector<ActivitySample> samples{{.local_rank = 0, .doing = "sleeping in futex_wait"},
                                      {.local_rank = 1, .doing = "sleeping in futex_wait"},
                                      {.local_rank = 2, .doing = "sleeping in futex_wait"}};
  std::string cause;

  std::string on(const hang::Event& event) {
    auto actions = step(state, event, now, config);
    for (const hang::Action& action : actions) {
      if (const auto* blame = std::get_if<action::Blame>(&action)) cause = blame->cause;
    }
    return to_string(actions);
  }
  void start(bool has_other_nodes = false) {
    on(event::Started{.local_ranks = {0, 1, 2}, .has_other_nodes = has_other_nodes});
  }
  // Lets so much time pass; returns the first thing that is wanted meanwhile.
  std::string pass(Duration duration) {
    MonoTime end = now + duration;
    for (;;) {
      auto tick = next_tick(state, config);
      MonoTime due = std::min(tick.value_or(end), state.look_at.value_or(end));
      if (due >= end) break;
      now = due;
      std::string wanted =
          tick == due ? on(event::Tick{}) : on(event::Looked{.samples = running_samples()});
      if (wanted != "nothing") return wanted;
    }
    now = end;
    return "nothing";
  }
  std::vector<ActivitySample> running_samples() const {
    std::vector<ActivitySample> some;
    for (const ActivitySample& sample : samples) {
      if (state.running.contains(sample.local_rank)) some.push_back(sample);
    }
    return some;
  }
  std::string stacks(std::map<int, bool> waits = {}, bool has_python = false) {
    return on(event::StacksTaken{
        .collection = state.collections, .waits = std::move(waits), .has_python = has_python});
  }
  std::string exit(int local_rank) { return on(event::Exited{local_rank}); }
};

// Rank 1 does something else than the others.
struct OneHangs : Watched {
  OneHangs() {
    samples[1].doing = "sleeping in hrtimer_nanosleep";
    start();
    CHECK(pass(1min) == "name 3 silent, take stacks");
  }
};

// No difference between them, and other nodes.
struct AllAlike : Watched {
  AllAlike() {
    start(true);
    CHECK(pass(1min) == "name 3 silent, take stacks");
  }
};

}  // namespace

TEST_SUITE("agent/decide/hang") {
  TEST_CASE_FIXTURE(OneHangs, "without a tool for Python all end by SIGABRT, the hung one first") {
    CHECK(now == MonoTime(10500ms));
    now += 3s;
    CHECK(stacks() == "blame 1, SIGABRT to 0, SIGABRT to 1, SIGABRT to 2");
    CHECK(cause.starts_with("hung: no output, CPU time or heartbeat for 10 s; it was sleeping"));
    CHECK(exit(2) == "hold");
    CHECK(exit(0) == "hold");
    CHECK(exit(1) == "hold, release 1 first");
  }

  TEST_CASE_FIXTURE(OneHangs, "with such a tool only the hung one is ended, and no end is held") {
    CHECK(stacks({}, true) == "blame 1, SIGABRT to 1");
    CHECK(exit(1) == "nothing");
  }

  TEST_CASE_FIXTURE(OneHangs, "others that are deaf to SIGABRT hold the end up for five seconds") {
    stacks();
    CHECK(exit(1) == "hold");
    CHECK(next_tick(state, config) == now + 5s);
    CHECK(pass(6s) == "release 1 first");
    CHECK(exit(0) == "nothing");
  }

  TEST_CASE_FIXTURE(OneHangs, "a hung worker that is deaf gets SIGKILL, and is then abandoned") {
    stacks();
    exit(0);
    exit(2);
    MonoTime begun = now;
    CHECK(pass(1min) == "kill 1");
    CHECK(now == begun + 5s);
    CHECK(pass(1min) == "abandon 1");
    CHECK(now == begun + 15s);
    CHECK(exit(1) == "hold, release 1 first");
  }

  TEST_CASE_FIXTURE(OneHangs, "an agent that stood still gives SIGKILL its time") {
    stacks({}, true);
    now += 1h;
    CHECK(on(event::Tick{}) == "kill 1");
    CHECK(next_tick(state, config) == now + 10s);
  }

  TEST_CASE_FIXTURE(OneHangs, "nothing is looked at while stacks are taken or a worker is ended") {
    CHECK_FALSE(state.look_at);
    CHECK(pass(30s) == "nothing");
    stacks({}, true);
    CHECK_FALSE(state.look_at);
    exit(1);
    CHECK(state.look_at == now + 500ms);
  }

  TEST_CASE_FIXTURE(OneHangs, "a worker that ends while its stacks are taken is not blamed") {
    CHECK(exit(1) == "nothing");
    CHECK(stacks() == "nothing");
    CHECK(state.look_at);
  }

  TEST_CASE_FIXTURE(OneHangs, "a stop while stacks are taken ends the watch") {
    CHECK(on(event::Stopped{}) == "nothing");
    CHECK(stacks() == "nothing");
    CHECK_FALSE(state.look_at);
    CHECK_FALSE(next_tick(state, config));
  }

  TEST_CASE_FIXTURE(OneHangs, "stacks of the attempt before end none of the next one's workers") {
    std::uint64_t former = state.collections;
    on(event::Stopped{});
    start();
    CHECK(pass(1min) == "name 3 silent, take stacks");
    CHECK(on(event::StacksTaken{.collection = former}) == "nothing");
    CHECK(stacks({}, true) == "blame 1, SIGABRT to 1");
  }

  TEST_CASE_FIXTURE(OneHangs, "a stop releases the ends that are held, and kills no more") {
    stacks();
    CHECK(exit(0) == "hold");
    CHECK(on(event::Stopped{}) == "release 1 first");
    CHECK(pass(1min) == "nothing");
    CHECK(exit(1) == "nothing");
  }

  TEST_CASE_FIXTURE(Watched, "stacks tell which one keeps the others waiting") {
    start();
    pass(1min);
    CHECK(stacks({{0, true}, {1, true}, {2, false}}, true) == "blame 2, SIGABRT to 2");
  }

  TEST_CASE_FIXTURE(Watched,
                    "stacks that do not come, since a disk stands still, keep nobody alive") {
    start();
    CHECK(on(event::TimerExpired{.local_rank = 1, .signal = SIGABRT, .cause = "hung"}) ==
          "blame 1, take stacks");
    const MonoTime begun = now;
    CHECK(pass(1min) == "SIGABRT to 0, SIGABRT to 1, SIGABRT to 2");
    CHECK(now == begun + 35s);
    CHECK(stacks() == "nothing");
  }

  TEST_CASE_FIXTURE(Watched, "other nodes are not waited for longer than their stacks may take") {
    start(true);
    now += 10s;
    CHECK(on(event::Looked{.samples = running_samples()}) == "nothing");
    CHECK(pass(11s) == "name 3 silent, take stacks");
    now += 28s;
    CHECK(stacks() == "leave to others for 9 s");
  }

  TEST_CASE_FIXTURE(Watched, "of one node the first is ended where none differs") {
    start();
    pass(1min);
    CHECK(stacks({}, true) == "blame 0, SIGABRT to 0");
  }

  TEST_CASE_FIXTURE(AllAlike, "of several nodes it is left to the others at first") {
    now += 4s;
    CHECK(stacks({{0, true}, {1, true}, {2, true}}) == "leave to others for 15 s");
    MonoTime begun = now;
    CHECK(pass(1min) == "blame 0, SIGABRT to 0, SIGABRT to 1, SIGABRT to 2");
    CHECK(now == begun + 15s);
    CHECK(cause.find("it was waiting in a collective") != std::string::npos);
  }

  TEST_CASE_FIXTURE(AllAlike, "another node ends its worker, which stops this one's") {
    stacks();
    pass(2s);
    CHECK(on(event::Stopped{}) == "nothing");
    CHECK(pass(1min) == "nothing");
  }

  TEST_CASE_FIXTURE(AllAlike, "workers that go on meanwhile are left alone") {
    stacks();
    CHECK(pass(3s) == "nothing");
    for (ActivitySample& sample : samples) sample.output_bytes += 1;
    CHECK(pass(9s) == "nothing");
    CHECK(pass(3s) == "name 3 silent, take stacks");
  }

  TEST_CASE_FIXTURE(AllAlike, "an agent that knows does not wait for the others") {
    CHECK(stacks({{0, true}, {1, false}, {2, true}}, true) == "blame 1, SIGABRT to 1");
  }

  TEST_CASE_FIXTURE(Watched, "a timer ends its worker by the signal that it wants") {
    start(true);
    CHECK(on(event::TimerExpired{1, SIGUSR1, "hung: its timer"}) == "blame 1, take stacks");
    CHECK(stacks() == "SIGUSR1 to 1");
    CHECK(exit(1) == "nothing");
  }

  TEST_CASE_FIXTURE(Watched, "SIGKILL is SIGABRT at first, for the stacks") {
    start(true);
    on(event::TimerExpired{1, SIGKILL, "hung: its timer"});
    CHECK(stacks() == "SIGABRT to 0, SIGABRT to 1, SIGABRT to 2");
  }

  TEST_CASE_FIXTURE(Watched, "timers that expire together have their stacks taken once") {
    start();
    CHECK(on(event::TimerExpired{1, SIGUSR1, "one"}) == "blame 1, take stacks");
    CHECK(on(event::TimerExpired{1, SIGUSR1, "again"}) == "nothing");
    CHECK(on(event::TimerExpired{2, SIGUSR2, "two"}) == "blame 2");
    CHECK(cause == "two");
    CHECK(stacks() == "SIGUSR1 to 1, SIGUSR2 to 2");
  }

  TEST_CASE_FIXTURE(Watched, "a timer of a worker that has ended, or is being stopped, is none") {
    start();
    exit(1);
    CHECK(on(event::TimerExpired{1, SIGKILL, "late"}) == "nothing");
    on(event::Stopped{});
    CHECK(on(event::TimerExpired{0, SIGKILL, "late"}) == "nothing");
  }

  TEST_CASE_FIXTURE(OneHangs, "a timer that expires while stacks are taken waits for them") {
    CHECK(on(event::TimerExpired{1, SIGUSR1, "hung: its timer"}) == "blame 1");
    CHECK(stacks() == "SIGUSR1 to 1");
  }

  TEST_CASE_FIXTURE(Watched, "without a timeout no look is due") {
    config.timeout = 0s;
    start();
    CHECK_FALSE(state.look_at);
    CHECK(on(event::Looked{.samples = samples}) == "nothing");
    CHECK(on(event::TimerExpired{0, SIGUSR1, "hung: its timer"}) == "blame 0, take stacks");
  }

  TEST_CASE_FIXTURE(Watched, "a new attempt starts afresh") {
    start();
    CHECK(pass(9s) == "nothing");
    start();
    CHECK(pass(9s) == "nothing");
    CHECK(pass(2s) == "name 3 silent, take stacks");
  }
}
