// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/stop_reason.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun;
using namespace ddprun::agent;
using namespace ddprun::agent::stop_reason;
using worker::StopCause;

namespace {

// A scheduler whose answer is the reason's word.
worker::StopReason reason_of(OutsideRequest request, WallTime /*now*/, std::string_view answer) {
  if (answer == "PREEMPTED") return {StopCause::Preempted, "job 12 is preempted", 10};
  if (answer == "TIMEOUT") return {StopCause::TimeLimit, "job 12 is nearly over", 60};
  if (answer == "REQUEUED") return {StopCause::Requeued, "job 12 is requeued", {}};
  if (answer == "CANCELLED") return {StopCause::Cancelled, "job 12 was cancelled", {}};
  return plain_reason_of(request);
}

struct Run {
  std::optional<Scheduler> scheduler;
  State state;
  Now now;

  std::string on(const Event& event) { return to_string(step(state, event, now, scheduler)); }
  std::string publish(StopCause cause, std::string words) {
    return on(event::Published{cause, std::move(words)});
  }
  std::string signal(int signal, bool is_stop = true) {
    return on(event::Signalled{{.signal = signal, .is_stop = is_stop}});
  }
  std::string answer(std::string text, Whose whose = Whose::Own) {
    return on(event::Answered{{.signal = SIGTERM}, whose, std::move(text)});
  }
};

struct ScheduledRun : Run {
  ScheduledRun() {
    scheduler = Scheduler{.name = "Slurm",
                          .sender = "slurmstepd",
                          .question = SchedulerQuestion{},
                          .reason_of = reason_of};
  }
};

}  // namespace

TEST_SUITE("agent/decide/stop_reason") {
  TEST_CASE_FIXTURE(Run, "a reason within the run is written, and goes with the workers") {
    CHECK(publish(StopCause::WorkerFailed, "rank 1 failed") ==
          "write worker-failed (rank 1 failed)");
    CHECK(on(event::Cleared{}) == "remove");
    CHECK(on(event::Cleared{}) == "nothing");
    CHECK_FALSE(state.reason);
  }

  TEST_CASE_FIXTURE(Run, "a later reason within the run takes the place of the first") {
    publish(StopCause::WorkerFailed, "rank 1 failed");
    CHECK(publish(StopCause::NewRound, "n2 was lost") == "write new-round (n2 was lost)");
  }

  TEST_CASE_FIXTURE(Run, "without a scheduler a signal is all that is known") {
    CHECK(signal(SIGTERM) == "write signal (ended from outside by SIGTERM)");
    CHECK(state.signal == SIGTERM);
    CHECK(publish(StopCause::RunEnded, "the run is over") == "nothing");
  }

  TEST_CASE_FIXTURE(Run, "a signal that only asks to save does not stop the run") {
    CHECK(signal(SIGUSR1, false) == "write signal (told from outside by SIGUSR1)");
    CHECK(publish(StopCause::WorkerFailed, "rank 1 failed") ==
          "write worker-failed (rank 1 failed)");
  }

  TEST_CASE_FIXTURE(ScheduledRun, "the scheduler is asked, and its answer is told") {
    CHECK(signal(SIGTERM) == "write signal (ended from outside by SIGTERM), ask");
    CHECK(state.questions == 1);
    CHECK(answer("CANCELLED") == "write cancelled (job 12 was cancelled), announce");
    CHECK(state.questions == 0);
  }

  TEST_CASE_FIXTURE(ScheduledRun, "no answer changes nothing") {
    signal(SIGTERM);
    CHECK(answer("") == "nothing");
    CHECK(state.questions == 0);
  }

  TEST_CASE_FIXTURE(ScheduledRun, "the same reason again is written, and not announced") {
    signal(SIGTERM);
    answer("CANCELLED");
    CHECK(answer("CANCELLED") == "write cancelled (job 12 was cancelled)");
  }

  TEST_CASE_FIXTURE(ScheduledRun, "what is known is not replaced by less") {
    signal(SIGTERM);
    answer("PREEMPTED");
    now.mono += kBetweenQuestions;
    CHECK(signal(SIGTERM) == "ask");
    CHECK(answer("RUNNING") == "nothing");
    CHECK(answer("REQUEUED") == "nothing");
    CHECK(state.reason->cause == StopCause::Preempted);
  }

  TEST_CASE_FIXTURE(ScheduledRun, "a requeue without a preemption is told") {
    signal(SIGTERM);
    CHECK(answer("REQUEUED") == "write requeued (job 12 is requeued), announce");
  }

  TEST_CASE_FIXTURE(ScheduledRun, "only two questions run at a time") {
    for (int asked = 0; asked < kMostQuestions; ++asked) {
      CHECK(signal(SIGUSR1, false).ends_with("ask"));
      now.mono += kBetweenQuestions;
    }
    CHECK_FALSE(signal(SIGTERM).ends_with("ask"));
    CHECK(answer("") == "ask");
  }

  TEST_CASE_FIXTURE(ScheduledRun, "of a flood of signals one is asked about in a while") {
    int asked = 0;
    for (int i = 0; i < 1000; ++i) {  // ten seconds of it
      if (signal(SIGUSR1, false).ends_with("ask")) {
        ++asked;
        answer("RUNNING");
      }
      now.mono += std::chrono::milliseconds(10);
    }
    CHECK(asked == 2);
  }

  TEST_CASE_FIXTURE(ScheduledRun, "what is not asked about has the last answer") {
    signal(SIGUSR1, false);
    CHECK_FALSE(signal(SIGUSR1, false).ends_with("ask"));
    CHECK(
        answer("CANCELLED") ==
        "write cancelled (job 12 was cancelled), announce, write cancelled (job 12 was cancelled)");
    CHECK(signal(SIGUSR2, false) == "write cancelled (job 12 was cancelled)");
  }

  TEST_CASE_FIXTURE(ScheduledRun, "the first signal that ends the run is always asked about") {
    signal(SIGUSR1, false);
    answer("RUNNING");
    CHECK(signal(SIGTERM).ends_with("ask"));
    CHECK_FALSE(signal(SIGTERM).ends_with("ask"));
    CHECK(answer("PREEMPTED").starts_with("write preempted (job 12 is preempted), announce"));
  }

  // Slurm signals all that runs in a step: also who asks about the first signal.
  TEST_CASE_FIXTURE(ScheduledRun, "a question that was ended by the next signal is asked again") {
    SUBCASE("seen after that signal") {
      CHECK(signal(SIGTERM).ends_with("ask"));
      CHECK_FALSE(signal(SIGTERM).ends_with("ask"));
      CHECK(answer("") == "ask");
    }
    SUBCASE("seen before it") {
      CHECK(signal(SIGTERM).ends_with("ask"));
      CHECK(answer("") == "nothing");
      CHECK(signal(SIGTERM).ends_with("ask"));
    }
    CHECK(answer("PREEMPTED").starts_with("write preempted (job 12 is preempted), announce"));
    int asked = 0;
    for (int i = 0; i < 100; ++i) {  // where there is never an answer
      if (!signal(SIGTERM).ends_with("ask")) continue;
      ++asked;
      answer("");
    }
    CHECK(asked == 0);
  }

  TEST_CASE_FIXTURE(ScheduledRun, "without any answer, too, it is asked once in a while") {
    int asked = 0;
    for (int i = 0; i < 100; ++i) {
      if (!signal(SIGUSR1, false).ends_with("ask")) continue;
      ++asked;
      answer("");
    }
    CHECK(asked == 1 + kMostUnanswered);
  }

  TEST_CASE_FIXTURE(ScheduledRun,
                    "the first stop of this node is asked about after another node's") {
    on(event::OtherSignalled{SIGTERM});
    answer("RUNNING");
    CHECK(signal(SIGTERM).ends_with("ask"));
  }

  TEST_CASE_FIXTURE(ScheduledRun, "a clock that is set back does not forbid questions") {
    now.wall += std::chrono::hours(1);
    signal(SIGUSR1, false);
    answer("RUNNING");
    now.wall -= std::chrono::hours(1);
    now.mono += kBetweenQuestions;
    CHECK(signal(SIGUSR1, false).ends_with("ask"));
  }

  TEST_CASE_FIXTURE(ScheduledRun, "another node's signal tells only what concerns the job") {
    CHECK(on(event::OtherSignalled{SIGTERM}) == "ask");
    CHECK(state.signal == SIGTERM);
    CHECK(answer("RUNNING", Whose::Others) == "nothing");
    CHECK(answer("PREEMPTED", Whose::Others) == "write preempted (job 12 is preempted), announce");
    CHECK(publish(StopCause::WorkerFailed, "rank 1 failed") == "nothing");
  }

  TEST_CASE_FIXTURE(ScheduledRun, "the node's own signal goes before another's") {
    signal(SIGUSR1, false);
    on(event::OtherSignalled{SIGTERM});
    CHECK(state.signal == SIGUSR1);
  }

  // Slurm's preemption with --signal: SIGUSR1 to all, and some time later SIGTERM, which does not
  // reach all nodes at once.
  TEST_CASE_FIXTURE(ScheduledRun, "a peer that ends by the same preemption is not its cause") {
    signal(SIGUSR1, false);
    answer("PREEMPTED");
    now.mono += std::chrono::seconds(8);
    StopCause cause = StopCause::NewRound;
    SUBCASE("the run goes on") {}
    SUBCASE("the run is over") {
      cause = StopCause::RunEnded;
    }
    on(event::OtherSignalled{SIGTERM});
    CHECK(publish(cause, "he1 was stopped by SIGTERM") == "nothing");
    CHECK(signal(SIGTERM).find("write") == std::string::npos);
    CHECK(state.written == Written::ReasonFromOutside);
  }

  TEST_CASE_FIXTURE(ScheduledRun, "what is known from outside is told to new workers, too") {
    signal(SIGUSR1, false);
    answer("PREEMPTED");
    on(event::Cleared{});
    now.mono += std::chrono::seconds(8);
    SUBCASE("when a peer ends") {
      CHECK(publish(StopCause::NewRound, "he1 was stopped by SIGTERM") ==
            "write preempted (job 12 is preempted)");
    }
    SUBCASE("when this node is signalled") {
      CHECK(signal(SIGTERM) == "write preempted (job 12 is preempted), ask");
    }
    on(event::Cleared{});
    std::vector<Action> actions =
        step(state, event::Published{StopCause::NewRound, "n2 was lost"}, now, scheduler);
    REQUIRE(actions.size() == 1);
    CHECK(std::get<action::Write>(actions.front()).reason.seconds_left == 2);  // of 10
  }

  TEST_CASE_FIXTURE(ScheduledRun, "a time limit that is near stops nothing by itself") {
    signal(SIGUSR1, false);
    answer("TIMEOUT");
    CHECK(publish(StopCause::WorkerFailed, "rank 1 failed") ==
          "write worker-failed (rank 1 failed)");
    SUBCASE("until another node is signalled") {
      now.mono += kBetweenQuestions;
      CHECK(on(event::OtherSignalled{SIGTERM}) == "ask");
      CHECK(publish(StopCause::NewRound, "he1 was stopped by SIGTERM") ==
            "write time-limit (job 12 is nearly over)");
    }
    SUBCASE("until this node is") {
      CHECK(signal(SIGTERM) == "write time-limit (job 12 is nearly over), ask");
      CHECK(publish(StopCause::RunEnded, "the run is over") == "nothing");
    }
  }
}
