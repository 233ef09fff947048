// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/time_account.h"

#include <doctest/doctest.h>

#include <csignal>
#include <numeric>

#include "agent/report/time_text.h"
#include "store/base/duration_text.h"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

rendezvous::command::Stop stop_by(rendezvous::Failure failure) {
  return {.cause = rendezvous::RoundEndCause::WorkerFailed, .failure = std::move(failure)};
}

RestartCause oom(const std::string& node) {
  return cause_of(stop_by({.node = node,
                           .status = {.signal = SIGKILL},
                           .message = "the kernel's OOM killer: memory cgroup limit reached"}));
}

RestartCause cause_of_loss(rendezvous::LossKind loss) {
  return cause_of({.cause = rendezvous::RoundEndCause::NodeLost,
                   .loss = loss,
                   .why = "n0:29400, where the nodes meet, was cut off"});
}

RestartCause lost_node() {
  return cause_of_loss(rendezvous::LossKind::Lost);
}

// A run, told by what its node does for how long.
struct Run {
  TimeKeeper keeper;
  MonoTime now{};

  Run() { keeper.begin(now); }
  void spend(Doing doing, Duration time) {
    keeper.enter(doing, now);
    now += time;
  }
  void restart(RestartCause cause, Duration stopping, Duration waiting, Duration starting) {
    keeper.enter(Doing::Stopping, now);
    keeper.interrupted(std::move(cause));
    now += stopping;
    spend(Doing::Waiting, waiting);
    spend(Doing::Starting, starting);
    keeper.enter(Doing::Training, now);
  }
  TimeAccount account() const { return keeper.account(now); }
};

std::string words_of(rendezvous::Failure failure) {
  return name_of(cause_of(stop_by(std::move(failure))));
}

}  // namespace

TEST_SUITE("agent/decide/time_account") {
  TEST_CASE("every second of a run is one of training, starting, stopping or waiting") {
    Run run;
    run.spend(Doing::Waiting, 3s);
    run.spend(Doing::Starting, 1s);
    run.spend(Doing::Training, 100s);
    run.restart(oom("node7"), 5s, 2s, 1s);
    run.spend(Doing::Training, 50s);
    run.spend(Doing::Stopping, 1s);
    TimeAccount account = run.account();
    CHECK(account.up == 163s);
    CHECK(account.of(Doing::Waiting) == 5s);
    CHECK(account.of(Doing::Starting) == 2s);
    CHECK(account.of(Doing::Training) == 150s);
    CHECK(account.of(Doing::Stopping) == 6s);
    CHECK(account.until_training == 4s);
    REQUIRE(account.restarts.size() == 1);
    CHECK(account.restarts[0].cost == 8s);
    CHECK(account.restarts[0].count == 1);
  }

  TEST_CASE("what was taken for training while a worker hung is hanging, once that is known") {
    Run run;
    run.spend(Doing::Training, 100s);
    run.keeper.enter(Doing::Stopping, run.now);  // it has ended, and is this node's
    run.now += 1s;
    run.keeper.hung(60s, run.now);
    run.keeper.hung(60s, run.now);  // it is told twice
    run.now += 4s;
    CHECK(run.account().of(Doing::Training) == 40s);
    CHECK(run.account().of(Doing::Hanging) == 60s);
    CHECK(run.account().of(Doing::Stopping) == 5s);
    run.spend(Doing::Training, 10s);
    run.keeper.hung(60s, run.now);  // that of another node, while the workers here run
    run.now += 2s;                  // they are told
    run.keeper.enter(Doing::Stopping, run.now);
    TimeAccount account = run.account();
    CHECK(account.of(Doing::Training) == 42s);
    CHECK(account.of(Doing::Hanging) == 70s);
    CHECK(account.up == 117s);
    CHECK(time_line(account) == "up 1 min 57 s, 35.8 % of it training, 59.8 % hanging");
  }

  TEST_CASE("what is under way counts up to now") {
    Run run;
    run.spend(Doing::Training, 10s);
    CHECK(run.keeper.account(run.now + 5s).of(Doing::Training) == 15s);
    CHECK(run.account().of(Doing::Training) == 10s);
  }

  TEST_CASE("a stop that no training follows is no restart") {
    Run run;
    run.spend(Doing::Training, 10s);
    run.keeper.enter(Doing::Stopping, run.now);
    run.keeper.interrupted(lost_node());
    run.now += 30s;
    CHECK(run.account().restarts.empty());
    CHECK(run.account().of(Doing::Stopping) == 30s);
  }

  TEST_CASE("of several causes until the workers run again the first counts") {
    Run run;
    run.spend(Doing::Training, 10s);
    run.keeper.enter(Doing::Stopping, run.now);
    run.keeper.interrupted(oom("node7"));
    run.keeper.interrupted(lost_node());
    run.now += 2s;
    run.spend(Doing::Training, 1s);
    REQUIRE(run.account().restarts.size() == 1);
    CHECK(run.account().restarts[0].cause == oom("node7"));
  }

  TEST_CASE("a failure is named in a few words") {
    CHECK(words_of({.status = {.exit_code = 1}, .message = "ValueError: boom"}) == "ValueError");
    CHECK(words_of({.status = {.exit_code = 1},
                    .message = "torch.cuda.OutOfMemoryError: CUDA out "
                               "of memory. Tried"}) == "CUDA out of memory");
    CHECK(words_of({.status = {.exit_code = 7}, .message = "no: name"}) == "no");
    CHECK(words_of({.status = {.exit_code = 7}, .message = "it failed"}) == "exit code 7");
    CHECK(words_of({.status = {.exit_code = 7}}) == "exit code 7");
    CHECK(words_of({.status = {.signal = SIGSEGV}}) == "SIGSEGV");
    CHECK(words_of({.status = {.signal = SIGABRT}, .message = "hung: no sign of life"}) == "hang");
    CHECK(words_of({.status = {.exit_code = 1}, .message = std::string(999, 'x') + ":"}).size() ==
          40);
  }
}

TEST_SUITE("agent/report/time_text") {
  TEST_CASE("what was lost is told apart, whatever the sentence says") {
    auto name = [](rendezvous::LossKind loss) { return name_of(cause_of_loss(loss)); };
    CHECK(name(rendezvous::LossKind::Lost) == "lost node");
    CHECK(name(rendezvous::LossKind::Left) == "departed node");
    CHECK(name(rendezvous::LossKind::CutOff) == "cut-off node");
    CHECK(name(rendezvous::LossKind::Rendezvous) == "lost rendezvous");
    CHECK(name(rendezvous::LossKind::Other) == "lost node");
    CHECK(cause_of_loss(rendezvous::LossKind::Other) == lost_node());
    CHECK(name_of(cause_of({.cause = rendezvous::RoundEndCause::NodeJoined})) == "new node");
  }

  TEST_CASE("a rendezvous that was lost is no lost node") {
    Run run;
    run.spend(Doing::Training, 1h);
    for (int i = 0; i < 2; ++i) {
      run.restart(cause_of_loss(rendezvous::LossKind::Rendezvous), 1s, 1s, 1s);
      run.spend(Doing::Training, 1h);
      if (i == 0) CHECK(time_line(run.account()).ends_with("cost 3.0 s (lost rendezvous)"));
    }
    CHECK(time_line(run.account()).ends_with("cost 6.0 s (2 x lost rendezvous)"));
  }

  TEST_CASE("the line of a long run") {
    Run run;
    run.spend(Doing::Training, 1h);
    run.restart(oom("node7"), 5s, 0s, 5s);
    run.spend(Doing::Training, 1h);
    run.restart(lost_node(), 10s, 10s, 1s);
    run.spend(Doing::Training, 10min);
    run.restart(oom("node7"), 5s, 0s, 5s);
    run.spend(Doing::Training, 2min + 19s);
    CHECK(time_line(run.account()) ==
          "up 2 h 13 min, 99.4 % of it training; 3 restarts cost 41 s (2 x OOM on node7, 1 lost "
          "node)");
    CHECK(is_worth_a_line(run.account()));
  }

  TEST_CASE("a run of one node names none, and one restart is one") {
    Run run;
    run.spend(Doing::Training, 98s);
    run.restart(oom(""), 2s, 0s, 0s);
    CHECK(time_line(run.account()) ==
          "up 1 min 40 s, 98.0 % of it training; 1 restart cost 2.0 s (OOM)");
  }

  TEST_CASE("a slow start is said, and that there was no training") {
    Run run;
    run.spend(Doing::Waiting, 10min);
    CHECK(time_line(run.account()) == "up 10 min, none of it training");
    run.spend(Doing::Training, 30min);
    CHECK(time_line(run.account()) == "up 40 min, 75.0 % of it training; it began after 10 min");
  }

  TEST_CASE("of many causes the first are named") {
    Run run;
    run.spend(Doing::Training, 1min);
    for (int node = 0; node < 8; ++node) run.restart(oom("n" + std::to_string(node)), 1s, 0s, 0s);
    CHECK(time_line(run.account())
              .ends_with("8 restarts cost 8.0 s (OOM on n0, OOM on n1, OOM on n2, OOM on n3, OOM "
                         "on n4, and 3 "
                         "more)"));
  }

  TEST_CASE("only a run without anything else trains for all of its time") {
    Run run;
    run.spend(Doing::Training, 100h);
    CHECK(time_line(run.account()) == "up 4 d 4 h, 100.0 % of it training");
    run.restart(oom(""), 1s, 0s, 0s);
    CHECK(time_line(run.account()).starts_with("up 4 d 4 h, 99.9 % of it training"));
  }

  TEST_CASE("a run of a few seconds says nothing, unless it had a restart") {
    Run run;
    run.spend(Doing::Training, 4900ms);
    CHECK(!is_worth_a_line(run.account()));
    run.spend(Doing::Training, 100ms);
    CHECK(is_worth_a_line(run.account()));
    Run restarted;
    restarted.spend(Doing::Training, 1s);
    restarted.restart(oom(""), 3ms, 0s, 1ms);
    CHECK(is_worth_a_line(restarted.account()));
    Run waiting;
    waiting.spend(Doing::Waiting, 6s);
    CHECK(is_worth_a_line(waiting.account()));
  }

  TEST_CASE("how long new workers took to connect, if that was more than a second a restart") {
    Run run;
    run.spend(Doing::Training, 100s);
    run.keeper.connected(run.now - 90s);  // those of the first start do not count
    CHECK(run.account().to_connect.restarts == 0);
    run.restart(oom(""), 1s, 0s, 0s);
    run.keeper.connected(run.now + 900ms);
    CHECK(connecting_line(run.account(), true) == "");
    run.restart(oom(""), 1s, 0s, 0s);
    run.spend(Doing::Training, 1s);  // and nobody has connected
    run.restart(oom(""), 1s, 0s, 0s);
    run.keeper.connected(run.now + 5100ms);
    run.keeper.connected(run.now + 50s);  // heard twice
    CHECK(run.account().to_connect.restarts == 2);
    CHECK(run.account().to_connect.spent == 6s);
    std::string spent =
        "the new workers of 2 restarts took 6.0 s until all ranks had connected "
        "(init_process_group)";
    CHECK(connecting_line(run.account(), false) == spent);
    CHECK(connecting_line(run.account(), true) ==
          spent + "; --warm-restarts would have saved the part of it that is imports");
  }

  TEST_CASE("durations have one unit or two") {
    CHECK(duration_text(0s) == "0 ms");
    CHECK(duration_text(449ms) == "449 ms");
    CHECK(duration_text(999600us) == "1.0 s");
    CHECK(duration_text(9900ms) == "9.9 s");
    CHECK(duration_text(9960ms) == "10 s");
    CHECK(duration_text(59400ms) == "59 s");
    CHECK(duration_text(59600ms) == "1 min");
    CHECK(duration_text(61s) == "1 min 1 s");
    CHECK(duration_text(1h) == "1 h");
    CHECK(duration_text(24h) == "1 d");
    CHECK(duration_text(25h + 29min) == "1 d 1 h");
  }
}
