// SPDX-License-Identifier: BSD-3-Clause
//
// Each cell of the table in agent/STATES.md.
#include "agent/decide/core.h"

#include <doctest/doctest.h>

#include <csignal>

#include "tests/support/worker_exits.h"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

// Plays events and says, in words, what the agent wants done about each.
struct Play {
  Config config{.local_world_size = 2, .stop_grace = 30s};
  Now now{};
  State state;

  std::string on(const Event& event) {
    Step next = step(state, event, now, config);
    state = std::move(next.state);
    return to_string(next.actions);
  }
  std::string exits(int local_rank, int code) {
    return on(test::worker_exited(local_rank, {.exit_code = code}));
  }
  std::string killed(int local_rank, int signal) {
    return on(test::worker_exited(local_rank, {.signal = signal}));
  }
  // It has failed since others did not come in time.
  std::string waited(int local_rank) {
    auto exited = test::worker_exited(local_rank, {.exit_code = 1});
    exited.wait = rendezvous::TimedOutWait{.in = "all_reduce"};
    return on(exited);
  }
  std::string swept() { return on(event::Swept{}); }
  std::string asked_to_stop(int signal) { return on(event::ShutdownRequested{signal}); }
  std::string ordered_to_stop() { return on(event::StopOrdered{}); }
  std::string told_of_end(int exit_code) { return on(event::RunEnded{exit_code}); }
  std::string rendezvous_fails() { return on(event::RendezvousFailed{"host gone"}); }
};

struct Joining : Play {
  Joining() { CHECK(to_string(begin().actions) == "join"); }
};

struct Running : Play {
  Running() { on(event::RoundJoined{}); }
};

struct StoppingAfterFailure : Running {
  StoppingAfterFailure() { killed(1, SIGKILL); }
};

struct StoppingByOrder : Running {
  StoppingByOrder() { ordered_to_stop(); }
};

struct InspectingOwn : Running {
  InspectingOwn() { waited(1); }
};

struct InspectingByOrder : Running {
  InspectingByOrder() { on(event::InspectOrdered{{.in = "barrier"}}); }
};

struct WaitingAfterSuccess : Running {
  WaitingAfterSuccess() {
    exits(0, 0);
    exits(1, 0);
    swept();
  }
};

struct WaitingAfterFailure : StoppingAfterFailure {
  WaitingAfterFailure() {
    killed(0, SIGTERM);
    swept();
  }
};

}  // namespace

TEST_SUITE("agent/decide/core: joining") {
  TEST_CASE_FIXTURE(Joining, "a joined round starts the workers, in the attempt it names") {
    CHECK(on(event::RoundJoined{.restart_count = 3}) == "start attempt 3");
    CHECK(state.phase == Phase::Running);
  }

  TEST_CASE_FIXTURE(Joining, "a failed rendezvous ends the run with its reason") {
    CHECK(rendezvous_fails() == "finish 80");
    CHECK(state.error == "host gone");
  }

  TEST_CASE_FIXTURE(Joining, "a run that ends without this node ends it too") {
    CHECK(told_of_end(0) == "finish 0");
  }

  TEST_CASE_FIXTURE(Joining, "an order to stop workers that are down changes nothing") {
    CHECK(ordered_to_stop() == "nothing");
    CHECK(on(event::RoundJoined{}) == "start attempt 0");
    CHECK(state.verdict == Verdict::None);
  }

  TEST_CASE_FIXTURE(
      Joining, "a signal while joining ends the run, and the round that still comes is ignored") {
    CHECK(asked_to_stop(SIGTERM) == "leave, finish 143");
    CHECK(on(event::RoundJoined{}) == "nothing");
    CHECK(rendezvous_fails() == "nothing");
    CHECK(told_of_end(0) == "nothing");
    CHECK(ordered_to_stop() == "nothing");
    CHECK(asked_to_stop(SIGTERM) == "nothing");
    CHECK(on(event::DeadlineReached{}) == "nothing");
  }
}

TEST_SUITE("agent/decide/core: running") {
  TEST_CASE_FIXTURE(Running, "all workers done: what they left is swept, and success is reported") {
    CHECK(exits(0, 0) == "nothing");
    CHECK(exits(1, 0) == "sweep");
    CHECK(swept() == "report success");
    CHECK(told_of_end(0) == "finish 0");
    CHECK_FALSE(state.failure);
  }

  TEST_CASE_FIXTURE(Running, "one failed worker takes its group down, and another round follows") {
    CHECK(killed(1, SIGKILL) == "report failure 137, signal SIGTERM");
    CHECK(ordered_to_stop() == "nothing");
    CHECK(killed(0, SIGTERM) == "sweep");
    CHECK(swept() == "join");
    CHECK(on(event::RoundJoined{.restart_count = 1}) == "start attempt 1");
  }

  TEST_CASE_FIXTURE(Running, "the failure is that of the first worker, not of its victims") {
    CHECK(exits(0, 9) == "report failure 9, signal SIGTERM");
    CHECK(told_of_end(9) == "nothing");
    CHECK(killed(1, SIGTERM) == "sweep");
    CHECK(swept() == "finish 9");
    REQUIRE(state.failure);
    CHECK(state.failure->local_rank == 0);
    CHECK(state.failure->status.exit_code == 9);
  }

  TEST_CASE_FIXTURE(Running, "when one has hung, the others are to show their stacks") {
    auto hung = test::worker_exited(1, {.signal = SIGABRT});
    hung.is_hang = true;
    CHECK(on(hung) == "report failure 134, signal SIGABRT");
    CHECK(killed(0, SIGABRT) == "sweep");
  }

  TEST_CASE_FIXTURE(Running, "the last worker's failure needs no signal") {
    CHECK(exits(0, 0) == "nothing");
    CHECK(exits(1, 3) == "report failure 3, sweep");
  }

  TEST_CASE_FIXTURE(Running, "each round has a failure of its own") {
    exits(0, 5);
    exits(1, 1);
    ordered_to_stop();
    swept();
    CHECK(state.failure->restart_count == 0);
    on(event::RoundJoined{.restart_count = 1});
    CHECK_FALSE(state.failure);
    exits(1, 6);
    CHECK(state.failure->restart_count == 1);
    CHECK(state.failure->status.exit_code == 6);
  }

  TEST_CASE_FIXTURE(Running, "workers that others' fate concerns are stopped, and start again") {
    CHECK(ordered_to_stop() == "signal SIGTERM");
    CHECK(killed(0, SIGTERM) == "nothing");
    CHECK(exits(1, 1) == "sweep");
    CHECK_FALSE(state.failure);
    CHECK(swept() == "join");
  }

  TEST_CASE_FIXTURE(Running, "the end of the run elsewhere ends the workers here") {
    CHECK(told_of_end(11) == "signal SIGTERM");
    exits(0, 0);
    exits(1, 0);
    CHECK(swept() == "finish 11");
  }

  TEST_CASE_FIXTURE(Running, "without a rendezvous the workers are stopped, and the run fails") {
    CHECK(rendezvous_fails() == "signal SIGTERM");
    exits(0, 0);
    CHECK(exits(1, 0) == "sweep");
    CHECK(swept() == "finish 80");
    CHECK(state.error == "host gone");
  }

  TEST_CASE_FIXTURE(Running, "a program that cannot be started is reported as a final failure") {
    CHECK(on(test::start_failed(1)) == "report final failure 127, signal SIGTERM");
    CHECK(told_of_end(127) == "nothing");
    CHECK(killed(0, SIGTERM) == "sweep");
    CHECK(swept() == "finish 127");
    CHECK(state.error == "start x: No such file");
  }

  TEST_CASE_FIXTURE(Running, "a start that fails for want of something is a failure as any other") {
    event::StartFailed failed = test::start_failed(1, kExitInfrastructure);
    failed.is_final = false;
    CHECK(on(failed) == "report failure 81, signal SIGTERM");
    CHECK(killed(0, SIGTERM) == "sweep");
    CHECK(state.error.empty());
  }

  TEST_CASE_FIXTURE(Running, "a start that fails during a stop is an end of that worker") {
    CHECK(asked_to_stop(SIGTERM) == "leave, signal SIGTERM");
    CHECK(on(test::start_failed(1)) == "nothing");
    CHECK(on(test::start_failed(1)) == "sweep");
    CHECK(state.error.empty());
    CHECK(swept() == "finish 143");
  }

  TEST_CASE_FIXTURE(Running, "when not even the first worker starts, there is nobody to signal") {
    CHECK(on(test::start_failed(0, 81)) == "report final failure 81, sweep");
  }

  TEST_CASE_FIXTURE(Running,
                    "a stop signal reaches the workers as it came, and the run ends with 128 + n") {
    CHECK(asked_to_stop(SIGINT) == "leave, signal SIGINT");
    CHECK(exits(0, 0) == "nothing");
    CHECK(killed(1, SIGINT) == "sweep");
    CHECK(swept() == "finish 130");
  }

  TEST_CASE_FIXTURE(Running, "a deadline that rings while all is well means nothing") {
    CHECK(on(event::DeadlineReached{}) == "nothing");
  }
}

TEST_SUITE("agent/decide/core: stopping") {
  TEST_CASE_FIXTURE(Running, "a second SIGTERM of Slurm's does not end the grace") {
    config.is_sigterm_repeated = true;
    CHECK(on(event::ShutdownRequested{SIGTERM}) == "leave, signal SIGTERM");
    now.mono += 1s;
    CHECK(on(event::ShutdownRequested{SIGTERM}) == "nothing");
    CHECK(on(event::ShutdownRequested{SIGINT}) == "kill now");
  }

  TEST_CASE_FIXTURE(Running, "a second stop signal ends the grace") {
    asked_to_stop(SIGINT);
    now.mono += kOneRequest;
    CHECK(asked_to_stop(SIGINT) == "kill now");
    killed(0, SIGKILL);
    CHECK(killed(1, SIGKILL) == "sweep");
    CHECK(swept() == "finish 130");
  }

  TEST_CASE_FIXTURE(Running, "what sends a stop signal twice at once asks once") {
    asked_to_stop(SIGTERM);
    now.mono += kOneRequest - 1ms;
    CHECK(asked_to_stop(SIGTERM) == "nothing");
    CHECK(asked_to_stop(SIGINT) == "nothing");
    now.mono += 1ms;
    CHECK(asked_to_stop(SIGTERM) == "kill now");
  }

  TEST_CASE_FIXTURE(StoppingAfterFailure, "the grace over, the workers are killed") {
    ordered_to_stop();
    REQUIRE(state.deadline.has_value());
    CHECK(*state.deadline - now.mono == 30s);
    now.mono += config.stop_grace;
    CHECK(on(event::DeadlineReached{}) == "kill now");
    CHECK(killed(0, SIGKILL) == "sweep");
    CHECK_FALSE(state.deadline.has_value());
    CHECK(swept() == "join");
  }

  TEST_CASE_FIXTURE(StoppingAfterFailure, "a worker that SIGKILL does not end is left behind") {
    ordered_to_stop();
    now.mono += config.stop_grace;
    CHECK(on(event::DeadlineReached{}) == "kill now");
    REQUIRE(state.deadline.has_value());
    CHECK(*state.deadline - now.mono == config.kill_limit);
    now.mono += config.kill_limit;
    CHECK(on(event::DeadlineReached{}) == "abandon, sweep");
    CHECK(state.running == 0);
    CHECK(on(event::DeadlineReached{}) == "nothing");
    CHECK(swept() == "join");
    CHECK(on(event::RoundJoined{.restart_count = 1}) == "start attempt 1");
    exits(0, 3);
    CHECK(*state.deadline - now.mono == config.stop_grace);
  }

  TEST_CASE_FIXTURE(Running, "more signals do not lengthen the wait for SIGKILL's effect") {
    asked_to_stop(SIGINT);
    now.mono += 1s;
    REQUIRE(asked_to_stop(SIGINT) == "kill now");
    MonoTime limit = state.deadline.value();
    now.mono += 1s;
    CHECK(asked_to_stop(SIGINT) == "kill now");
    CHECK(state.deadline == limit);
    now.mono = limit;
    CHECK(on(event::DeadlineReached{}) == "abandon, sweep");
    CHECK(swept() == "finish 130");
  }

  TEST_CASE_FIXTURE(StoppingAfterFailure, "a stop signal during a stop prevents the next round") {
    ordered_to_stop();
    CHECK(asked_to_stop(SIGTERM) == "leave");
    CHECK(killed(0, SIGTERM) == "sweep");
    CHECK(swept() == "finish 143");
  }

  TEST_CASE_FIXTURE(Running,
                    "a stop signal after all workers have succeeded does not make it a failure") {
    exits(0, 0);
    exits(1, 0);
    CHECK(asked_to_stop(SIGTERM) == "nothing");
    now.mono += kOneRequest;
    CHECK(asked_to_stop(SIGTERM) == "kill now");
    CHECK(swept() == "report success");
    CHECK(told_of_end(0) == "finish 0");
  }

  TEST_CASE_FIXTURE(StoppingByOrder, "the run may end while the workers are stopped for a round") {
    CHECK(told_of_end(7) == "nothing");
    exits(0, 0);
    exits(1, 0);
    CHECK(swept() == "finish 7");
  }

  TEST_CASE_FIXTURE(StoppingByOrder, "an end is final") {
    told_of_end(7);
    CHECK(ordered_to_stop() == "nothing");
    CHECK(rendezvous_fails() == "nothing");
    exits(0, 0);
    exits(1, 0);
    CHECK(swept() == "finish 7");
  }

  TEST_CASE_FIXTURE(Running, "a success that others' failure overtakes is not reported") {
    exits(0, 0);
    exits(1, 0);
    CHECK(ordered_to_stop() == "nothing");
    CHECK(swept() == "join");
  }
}

TEST_SUITE("agent/decide/core: waiting") {
  TEST_CASE_FIXTURE(WaitingAfterSuccess, "the others fail, so all do it again") {
    CHECK(ordered_to_stop() == "join");
  }

  TEST_CASE_FIXTURE(WaitingAfterSuccess, "the verdict ends it") {
    CHECK(told_of_end(0) == "finish 0");
  }

  TEST_CASE_FIXTURE(WaitingAfterSuccess, "nobody is there any more to say what follows") {
    CHECK(rendezvous_fails() == "finish 80");
  }

  TEST_CASE_FIXTURE(Running, "a signal after the success counts if another round follows") {
    exits(0, 0);
    exits(1, 0);
    asked_to_stop(SIGTERM);
    ordered_to_stop();
    CHECK(swept() == "leave, finish 143");
  }

  TEST_CASE_FIXTURE(WaitingAfterSuccess, "a signal ends the wait") {
    CHECK(asked_to_stop(SIGINT) == "leave, finish 130");
  }

  TEST_CASE_FIXTURE(WaitingAfterFailure, "the rendezvous decides what follows a failure") {
    CHECK(state.phase == Phase::Waiting);
    CHECK(ordered_to_stop() == "join");
  }

  TEST_CASE_FIXTURE(WaitingAfterFailure, "the budget is spent") {
    CHECK(told_of_end(137) == "finish 137");
  }
}

TEST_CASE("Core: the end of the lease shortens the grace, and never lengthens it") {
  StoppingByOrder play;
  MonoTime kill_by = play.now.mono + 2s;
  CHECK(play.on(event::LeaseEnding{kill_by}) == "nothing");
  CHECK(play.state.deadline == kill_by);
  play.on(event::LeaseEnding{kill_by + 1min});
  CHECK(play.state.deadline == kill_by);
  play.now.mono = kill_by;
  CHECK(play.on(event::DeadlineReached{}) == "kill now");
  // SIGKILL has been sent: its own limit counts from here on.
  CHECK(play.on(event::LeaseEnding{kill_by}) == "nothing");
  CHECK(play.state.deadline == kill_by + play.config.kill_limit);
}

TEST_CASE("Core: the end of the lease holds whatever the workers are stopped for") {
  Running play;
  play.asked_to_stop(SIGTERM);
  play.on(event::LeaseEnding{play.now.mono + 2s});
  CHECK(play.state.deadline == play.now.mono + 2s);
  StoppingAfterFailure other;
  other.on(event::LeaseEnding{other.now.mono + 2s});
  CHECK(other.state.deadline == other.now.mono + 2s);
}

TEST_CASE("Core: the end of the lease that is known before the stop holds in that round alone") {
  Running play;
  CHECK(play.on(event::LeaseEnding{play.now.mono + 2s}) == "nothing");
  play.on(event::StopOrdered{});
  CHECK(play.state.deadline == play.now.mono + 2s);
  Joining next;
  next.state.kill_by = next.now.mono;
  next.on(event::RoundJoined{0});
  next.on(event::StopOrdered{});
  CHECK(next.state.deadline == next.now.mono + next.config.stop_grace);
}

TEST_CASE("Core: the end of the lease is nothing to an agent whose workers are down") {
  Joining joining;
  CHECK(joining.on(event::LeaseEnding{joining.now.mono}) == "nothing");
  CHECK(!joining.state.deadline);
  Running running;  // the stop that comes with it is what counts
  CHECK(running.on(event::LeaseEnding{running.now.mono}) == "nothing");
  CHECK(!running.state.deadline);
}

TEST_SUITE("agent/decide/core: inspecting") {
  TEST_CASE_FIXTURE(Running,
                    "a wait that was over leads to stacks, and any other failure does not") {
    CHECK(waited(1) == "report failure 1, take stacks");
    CHECK(state.phase == Phase::Inspecting);
    CHECK(state.deadline == now.mono + config.inspect_limit);
    Running other;
    CHECK(other.exits(1, 1) == "report failure 1, signal SIGTERM");
  }

  TEST_CASE_FIXTURE(Running, "with no worker left there is nothing to be seen") {
    exits(0, 0);
    CHECK(waited(1) == "report failure 1, report findings, sweep");
    CHECK(state.phase == Phase::Stopping);
    CHECK(state.workers_end == WorkersEnd::WorkerFailed);
  }

  TEST_CASE_FIXTURE(Running, "the order of the rendezvous leads to stacks") {
    CHECK(on(event::InspectOrdered{{.in = "barrier"}}) == "take stacks");
    CHECK(state.phase == Phase::Inspecting);
  }

  TEST_CASE_FIXTURE(InspectingOwn, "findings are reported once, and the verdict is waited for") {
    CHECK(on(event::Inspected{}) == "report findings");
    CHECK(on(event::Inspected{}) == "nothing");
    CHECK(on(event::InspectOrdered{{.in = "barrier"}}) == "take stacks");  // a second look
    CHECK(on(event::InspectOrdered{{.in = "barrier"}}) == "nothing");
    CHECK(state.phase == Phase::Inspecting);
  }

  TEST_CASE_FIXTURE(InspectingOwn, "the verdict stops the workers, also before the findings") {
    CHECK(told_of_end(1) == "signal SIGTERM");
    CHECK(state.workers_end == WorkersEnd::WorkerFailed);
    CHECK(on(event::Inspected{}) == "nothing");
  }

  TEST_CASE_FIXTURE(InspectingByOrder, "on another node it is an order") {
    CHECK(ordered_to_stop() == "signal SIGTERM");
    CHECK(state.workers_end == WorkersEnd::Ordered);
  }

  TEST_CASE_FIXTURE(InspectingByOrder, "a worker that ends is a victim, and the last one ends it") {
    CHECK(exits(0, 1) == "nothing");
    CHECK(state.phase == Phase::Inspecting);
    CHECK(exits(1, 1) == "report findings, sweep");
    CHECK_FALSE(state.failure);
    CHECK(swept() == "nothing");
    CHECK(state.phase == Phase::Waiting);
    CHECK(ordered_to_stop() == "join");
  }

  TEST_CASE_FIXTURE(InspectingOwn, "the deadline stops the workers without the verdict") {
    CHECK(on(event::DeadlineReached{}) == "report findings, signal SIGTERM");
    CHECK(state.phase == Phase::Stopping);
    CHECK(state.deadline == now.mono + config.stop_grace);
  }

  TEST_CASE_FIXTURE(InspectingOwn, "a signal asks for no findings") {
    CHECK(asked_to_stop(SIGINT) == "leave, signal SIGINT");
    CHECK(state.workers_end == WorkersEnd::ShutdownRequested);
  }

  TEST_CASE_FIXTURE(InspectingByOrder, "a rendezvous that fails ends it") {
    CHECK(rendezvous_fails() == "signal SIGTERM");
    CHECK(state.verdict == Verdict::End);
  }

  TEST_CASE_FIXTURE(InspectingByOrder, "a lease that ends is heard with the stop") {
    CHECK(on(event::LeaseEnding{now.mono + 1s}) == "nothing");
    CHECK(state.deadline == now.mono + config.inspect_limit);
  }

  TEST_CASE_FIXTURE(InspectingByOrder, "workers that were still being started count as ended") {
    CHECK(on(test::start_failed(1)) == "nothing");
    CHECK(exits(0, 1) == "report findings, sweep");
  }

  TEST_CASE_FIXTURE(WaitingAfterSuccess,
                    "a node without workers says at once that it sees nothing") {
    CHECK(on(event::InspectOrdered{{.in = "barrier"}}) == "report findings");
    StoppingByOrder judged;
    CHECK(judged.on(event::InspectOrdered{{.in = "barrier"}}) == "nothing");
    Joining joining;
    CHECK(joining.on(event::InspectOrdered{{.in = "barrier"}}) == "nothing");
    CHECK(joining.on(event::Inspected{}) == "nothing");
  }
}
