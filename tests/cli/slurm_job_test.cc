// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/job.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun;
using namespace ddprun::cli;
using worker::StopCause;
using namespace std::chrono_literals;

namespace {

constexpr WallTime kNow{1'795'304'300s};
const SlurmJob kJob{.id = "12", .restart_count = 1, .node_count = 2, .node = 0, .end = {}};

// What `scontrol show job` of Slurm 22.05 says, as far as it matters, and some of what does not.
std::string answer(const std::string& fields) {
  return "JobId=12 JobName=a UserId=root(0) Priority=1 Requeue=1 BatchFlag=1 "
         "PreemptEligibleTime=1795304296 " +
         fields + " Partition=main NodeList=node[0-1] Command=/a/JobState=x.sh\n";
}

StopCause cause_of(const std::string& fields, int signal = SIGTERM, bool is_stop = true) {
  return reason_of(signal, is_stop, kJob, kNow, answer(fields)).cause;
}

}  // namespace

TEST_SUITE("cli/slurm/job") {
  TEST_CASE("what scontrol says of a job that is being ended") {
    struct Case {
      const char* fields;
      StopCause cause;
    };
    for (const Case& c : {
             Case{"JobState=COMPLETING Reason=None Restarts=1 EndTime=1795304300 PreemptTime=None "
                  "NumNodes=2",
                  StopCause::Cancelled},
             {"JobState=COMPLETING Reason=TimeLimit Restarts=1 EndTime=1795304300 PreemptTime=None "
              "NumNodes=2",
              StopCause::TimeLimit},
             {"JobState=COMPLETING Reason=NodeDown Restarts=1 EndTime=1795304300 PreemptTime=None "
              "NumNodes=1",
              StopCause::NodeFailed},
             // Requeued at once, so that the reason is no longer there.
             {"JobState=COMPLETING Reason=None Restarts=2 EndTime=1826840300 NumNodes=1",
              StopCause::NodeFailed},
             {"JobState=COMPLETING Reason=None Restarts=2 EndTime=Unknown NumNodes=2",
              StopCause::Requeued},
             {"JobState=COMPLETING Reason=None Restarts=1 PreemptTime=1795304290 NumNodes=2",
              StopCause::Preempted},
             {"JobState=PREEMPTED Reason=None Restarts=1 NumNodes=2", StopCause::Preempted},
             // It had lost a node before, and lived on (--no-kill).
             {"JobState=COMPLETING Reason=None Restarts=1 PreemptTime=None NumNodes=1",
              StopCause::Cancelled},
         }) {
      CAPTURE(c.fields);
      CHECK(cause_of(c.fields) == c.cause);
      CHECK(cause_of(c.fields, SIGUSR1, false) == c.cause);
    }
  }

  TEST_CASE("a job that runs is preempted when it says so") {
    auto reason = reason_of(SIGUSR1, false, kJob, kNow,
                            answer("JobState=RUNNING Reason=None Restarts=1 EndTime=1795304310 "
                                   "PreemptTime=1795304300"));
    CHECK(reason.cause == StopCause::Preempted);
    CHECK(reason.words == "Slurm has preempted job 12");
    CHECK(reason.seconds_left == 10);
  }

  TEST_CASE("a job that Slurm is just signalling runs on") {
    CHECK(cause_of("JobState=SIGNALING PreemptTime=None EndTime=1795304400", SIGUSR1, false) ==
          StopCause::TimeLimit);
    CHECK(cause_of("JobState=SIGNALING PreemptTime=None EndTime=Unknown") == StopCause::Signal);
  }

  TEST_CASE("a signal to a job that runs on is somebody's own") {
    auto reason =
        reason_of(SIGTERM, true, kJob, kNow,
                  answer("JobState=RUNNING Restarts=1 EndTime=1795308000 PreemptTime=None"));
    CHECK(reason.cause == StopCause::Signal);
    CHECK(reason.words == "ended from outside by SIGTERM; Slurm's job 12 goes on");
    CHECK(reason.seconds_left == 3700);
  }

  TEST_CASE("a save request near the limit announces it") {
    auto at = [](const char* end) {
      return reason_of(SIGUSR1, false, kJob, kNow,
                       answer("JobState=RUNNING PreemptTime=None EndTime=" + std::string(end)));
    };
    CHECK(at("1795304417").cause == StopCause::TimeLimit);
    CHECK(at("1795304417").words == "the time of job 12 is over in 117 s");
    CHECK(at("1795304417").seconds_left == 117);
    CHECK(at("1795304601").cause == StopCause::Signal);
    CHECK(at("Unknown").cause == StopCause::Signal);
    CHECK_FALSE(at("Unknown").seconds_left);
  }

  TEST_CASE("without scontrol the time limit is known by SLURM_JOB_END_TIME") {
    SlurmJob job = kJob;
    CHECK(reason_of(SIGTERM, true, &job, kNow).words == "ended from outside by SIGTERM");
    CHECK(reason_of(SIGUSR1, false, nullptr, kNow).words == "told from outside by SIGUSR1");
    job.end = kNow + 1s;
    CHECK(reason_of(SIGTERM, true, &job, kNow).cause == StopCause::TimeLimit);
    job.end = kNow + 60s;
    CHECK(reason_of(SIGTERM, true, &job, kNow).cause == StopCause::Signal);
    CHECK(reason_of(SIGUSR1, false, &job, kNow).cause == StopCause::TimeLimit);
    job.end = kNow + 1h;
    CHECK(reason_of(SIGUSR1, false, &job, kNow).cause == StopCause::Signal);
  }

  TEST_CASE("an answer that is none changes nothing") {
    for (const char* text : {"", "slurm_load_jobs error: Invalid job id specified\n",
                             "JobId=13 JobState=COMPLETING", "JobId=12", "JobState=COMPLETING"}) {
      CAPTURE(text);
      CHECK(reason_of(SIGTERM, true, kJob, kNow, text).words == "ended from outside by SIGTERM");
    }
  }

  TEST_CASE("the nodes of a large job do not ask all at once") {
    SlurmJob job = kJob;
    for (auto [node, delay] : {std::pair{0, 0ms}, {31, 0ms}, {32, 100ms}, {1023, 3100ms}}) {
      job.node = node;
      CHECK(delay_of_question(job) == delay);
    }
  }
}
