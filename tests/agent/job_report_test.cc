// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/job_report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "agent/report/advice.h"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

rendezvous::Failure boom() {
  return {.rank = 5,
          .local_rank = 1,
          .pid = 4211,
          .node = "node7",
          .status = {.exit_code = 1},
          .message = "ValueError: boom\nsecond line",
          .log_path = "/logs/attempt_0/1",
          .traceback =
              "Traceback (most recent call last):\n  File \"t.py\", line 3\nValueError: "
              "boom\n"};
}

bool has(const std::vector<std::string>& lines, const std::string& wanted) {
  return std::find(lines.begin(), lines.end(), wanted) != lines.end();
}

}  // namespace

TEST_SUITE("agent/report/job_report") {
  TEST_CASE("the cause comes first, then its words, its victims, its logs, and what to do") {
    JobReport report{
        .node = "node7",
        .failures = {boom()},
        .victims = {{.rank = 4, .status = {.signal = SIGTERM}, .is_stopped_by_us = true},
                    {.rank = 6, .status = {.exit_code = 1}},
                    {.rank = 7, .status = {.signal = SIGTERM}, .is_stopped_by_us = true}},
        .finished = {3}};
    CHECK(
        to_lines(report) ==
        std::vector<std::string>{
            "FAILED: rank 5 (local rank 1, pid 4211) on node7 exited with code 1: ValueError: boom",
            "  traceback:", "    Traceback (most recent call last):", "      File \"t.py\", line 3",
            "    ValueError: boom", "  had ended with exit code 0 before that: rank 3",
            "  after that, as its victims: rank 6 exited with code 1",
            "  then stopped by ddprun: ranks 4, 7", "  logs: /logs/attempt_0/1",
            "  exit code: 1, the worker's own",
            "  next: correct what its last words above say, on node7"});
  }

  TEST_CASE("where all nodes write to one place, the report is that of the failed worker's node") {
    JobReport report{.node = "node3", .failures = {boom()}, .shares_output = true};
    report.stuck = {"rank 2 does not end"};
    report.log_path = "/logs";
    CHECK(
        to_lines(report) ==
        std::vector<std::string>{
            "FAILED: rank 5 (local rank 1, pid 4211) on node7 exited with code 1: ValueError: boom",
            "  left behind: rank 2 does not end",
            "  exit code: 1, the worker's own; the report is that of node7"});
    report.node = "node7";
    CHECK(has(to_lines(report), "  traceback:"));
    report.node = "node3";
    report.error = "too few nodes came";
    CHECK(has(to_lines(report), "  logs: /logs"));
  }

  rendezvous::Failure waited() {
    rendezvous::Failure failure = boom();
    failure.waited_in = "all_reduce";
    failure.suspects = {
        {.rank = 1, .pid = 4711, .node = "node2", .doing = "sleeps in load (data.py:40)"}};
    failure.suspect_count = 1;
    failure.also_waited = 6;
    return failure;
  }

  TEST_CASE("a wait that was over begins with the rank that did not come") {
    JobReport report{.node = "node7", .failures = {waited()}};
    std::vector<std::string> lines = to_lines(report);
    CHECK(lines.front() ==
          "FAILED: rank 1 (node2, pid 4711) did not come to all_reduce: it sleeps in load "
          "(data.py:40); rank 5 (local rank 1, pid 4211) on node7 waited for it and exited with "
          "code 1: ValueError: boom");
    CHECK(has(lines, "  its victims, too: 6 other ranks waited in vain"));
    CHECK(has(lines, "  next: see why rank 1 did not come, on node2"));
    report.failures.back().suspects.front().doing = "sleeps";
    CHECK(next_step(report).find("py-spy") != std::string::npos);
  }

  TEST_CASE("where nobody is suspected, that is said") {
    JobReport report{.node = "node7", .failures = {waited()}};
    report.failures.back().suspects.clear();
    std::vector<std::string> lines = to_lines(report);
    CHECK(lines.front().starts_with("FAILED: rank 5 "));
    CHECK(has(lines, "  whom it waited for is not known: 6 other ranks waited in vain, too"));
    report.failures.back().also_waited = 0;
    CHECK(has(to_lines(report),
              "  whom it waited for is not known: no stack shows a rank that is elsewhere"));
  }

  TEST_CASE("a rank that is waited for again and again is named, within the report's limit") {
    JobReport report{.node = "elsewhere", .max_restarts = 9};
    for (int attempt = 0; attempt < 10; ++attempt) {
      report.failures.push_back(waited());
      report.failures.back().restart_count = attempt;
      for (int line = 0; line < 100; ++line) report.failures.back().traceback += "x\n";
    }
    report.victims = {{.rank = 9, .status = {.exit_code = 1}},
                      {.rank = 3, .status = {.signal = SIGKILL}, .is_stopped_by_us = true}};
    report.finished = {8};
    report.stuck = {"rank 2 does not end"};
    report.dumps = {"/logs/flight_recorder/attempt_0_rank_5"};
    report.log_loss = {.why = "No space left on device"};
    report.outside = OutsideSignal{.signal = "SIGUSR1", .reason = "signal", .words = "w"};
    report.time = TimeAccount{.up = std::chrono::hours(1),
                              .to_connect = {.restarts = 9, .spent = std::chrono::seconds(50)}};
    std::vector<std::string> lines = to_lines(report);
    CHECK(has(lines,
              "  restarts: the new workers of 9 restarts took 50 s until all ranks had "
              "connected (init_process_group)"));
    CHECK(lines.size() <= kReportLines);
    CHECK(has(lines, "  again and again: rank 1 on node2 kept others waiting in 10 attempts"));
    CHECK(has(lines, "  the logs on this node miss lines: No space left on device"));
    CHECK(has(lines,
              "  flight recorder: /logs/flight_recorder/attempt_0_rank_5; torchfrtrace reads it"));
  }

  TEST_CASE("a wait of NCCL's that was over is no program that ended itself") {
    rendezvous::Failure failure = boom();
    failure.traceback.clear();
    failure.status = {.signal = SIGABRT};
    failure.stderr_tail = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2)";
    CHECK(
        next_step({.exit_code = 134, .failures = {failure}}).starts_with("see what each rank did"));
  }

  TEST_CASE("what to look at on a node for which the run has waited in vain") {
    JobReport report{.error = "node1 was lost (its agent is gone); then only 1 of 2 nodes came",
                     .loss = "node1 was lost (its agent is gone)"};
    CHECK(next_step(report).starts_with("look at node1: "));
    CHECK(
        step_after_loss("the network fell apart").starts_with("look at the node that was lost: "));
    for (const char* loss : {"this node stood still past the end of its lease",
                             "the others have given this node up: its lease was over"})
      CHECK(step_after_loss(loss).starts_with("look at this node: "));
    CHECK(step_after_loss("node0:29400, where the nodes meet, has been silent for 5 s")
              .starts_with("look at what hosts the endpoint"));
  }

  TEST_CASE("what to do about a rendezvous that is found by a folder or by etcd") {
    auto step = [](const std::string& place, const std::string& why) {
      return next_step(
          {.exit_code = 80,
           .error = "cannot meet the other nodes at " + place + ": " + why + "; tried for 60.0 s"});
    };
    const std::string folder = "file:/shared/run1";
    CHECK(step(folder, "the folder /shared/run1 does not exist").starts_with("make that folder"));
    CHECK(step(folder, "the folder /shared/run1 is on a read-only file system")
              .starts_with("see why the file system of that folder is read-only"));
    CHECK(step(folder, "write /shared/run1/a: Read-only file system")
              .starts_with("see why the file system of that folder is read-only"));
    CHECK(step(folder, "the folder /shared/run1 cannot be written to by this user")
              .starts_with("see that this user may write in that folder"));
    CHECK(step(folder, folder + ": the disk stands still")
              .starts_with("see why that folder does not answer on this node"));
    CHECK(step("etcd at e1:2379",
               "no member of etcd can be used: e1:2379: etcdserver: mvcc: database space exceeded")
              .starts_with("etcd is full: "));
    CHECK(step("etcd at e1:2379", "no further thread can be started")
              .starts_with("allow more threads and processes (ulimit -u"));
  }

  TEST_CASE("logs on another node are told to be there, and no other folder is named for them") {
    auto logs_line = [](const JobReport& report) -> std::string {
      for (const std::string& line : to_lines(report)) {
        if (line.starts_with("  logs: ")) return line;
      }
      return "";
    };
    JobReport report{.node = "node7", .failures = {boom()}};
    CHECK(logs_line(report) == "  logs: /logs/attempt_0/1");
    report.node = "elsewhere";
    report.log_path = "/mine";
    CHECK(logs_line(report) == "  logs: /logs/attempt_0/1 on node7");
    report.failures.back().log_path.clear();
    CHECK(logs_line(report) == "");
  }

  TEST_CASE("a log file that misses lines is told of its own folder only") {
    const std::string loss = "write /logs/attempt_0/1/stdout.log: No space left on device";
    JobReport report{.node = "node7", .failures = {boom()}, .log_loss = {loss}};
    CHECK(has(to_lines(report), "  logs: /logs/attempt_0/1, which miss lines: " + loss));
    report.failures.back().log_path = "/logs/attempt_0/10";
    CHECK(has(to_lines(report), "  logs: /logs/attempt_0/10"));
    CHECK(has(to_lines(report), "  the logs on this node miss lines: " + loss));
    // Two nodes on one machine have one name.
    report.failures.back().log_path = "/other/attempt_0/1";
    CHECK(has(to_lines(report), "  logs: /other/attempt_0/1"));
    CHECK(has(to_lines(report), "  the logs on this node miss lines: " + loss));
    CHECK(has(to_lines({.error = "no", .log_path = "/logs", .log_loss = {loss}}),
              "  logs: /logs, which miss lines: " + loss));
    // Of files that the workers have themselves.
    report.log_loss = {.why = "the disk of /logs is full", .is_certain = false};
    CHECK(
        has(to_lines(report), "  the logs on this node may miss lines: the disk of /logs is full"));
  }

  TEST_CASE("a console that misses output is told, and in report.json") {
    const std::string loss = "stdout, which is /out, misses 7 bytes: No space left on device";
    JobReport report{.node = "node7", .failures = {boom()}, .console_loss = loss};
    CHECK(has(to_lines(report), "  console: " + loss));
    CHECK(nlohmann::json::parse(to_json(report)).at("console_loss") == loss);
    report.console_loss = "";
    CHECK(nlohmann::json::parse(to_json(report)).at("console_loss").is_null());
  }

  TEST_CASE("what cannot be shown in full keeps its end") {
    JobReport report{.max_restarts = 9};
    for (int attempt = 0; attempt < 10; ++attempt) {
      rendezvous::Failure failure = boom();
      failure.restart_count = attempt;
      failure.traceback.clear();
      for (int line = 0; line < 100; ++line) failure.traceback += "x\n";
      failure.traceback += "KeyError: 'last'\n\n";
      report.failures.push_back(failure);
    }
    report.victims.assign(64, {.rank = 9, .status = {.exit_code = 1}});
    report.victims.push_back({.rank = 3, .status = {.signal = SIGKILL}, .is_stopped_by_us = true});
    std::vector<std::string> lines = to_lines(report);
    CHECK(lines.size() <= kReportLines);
    CHECK(has(lines, "  traceback (the last 14 lines):"));
    CHECK(has(lines, "    KeyError: 'last'"));
    CHECK(has(lines, "    ... 4 more ..."));
    CHECK(lines[lines.size() - 4].starts_with("    attempt 8: rank 5"));
    CHECK(has(lines, "  then stopped by ddprun: rank 3"));
  }

  TEST_CASE("three failures that spend the budget are all shown") {
    JobReport report{.max_restarts = 2};
    for (int attempt = 0; attempt < 3; ++attempt) {
      report.failures.push_back({.rank = attempt,
                                 .pid = 7,
                                 .node = "n" + std::to_string(attempt),
                                 .status = {.exit_code = 10 + attempt},
                                 .restart_count = attempt});
    }
    std::vector<std::string> lines = to_lines(report);
    CHECK(lines[0] == "FAILED: rank 2 (local rank 0, pid 7) on n2 exited with code 12");
    CHECK(has(lines, "    attempt 0: rank 0 (local rank 0, pid 7) on n0 exited with code 10"));
    CHECK(has(lines, "    attempt 1: rank 1 (local rank 0, pid 7) on n1 exited with code 11"));
  }

  TEST_CASE("long lines are cut, but not inside a character") {
    rendezvous::Failure failure = boom();
    failure.traceback = std::string(393, 'x') + "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9";
    for (const std::string& line : to_lines({.failures = {failure}})) {
      CHECK(line.size() <= kReportColumns + 3);
      if (line.starts_with("    xxx")) CHECK(line.ends_with("x\xc3\xa9..."));
    }
  }

  TEST_CASE("what a worker wrote is quoted, but for its tabs") {
    rendezvous::Failure failure = boom();
    failure.traceback.clear();
    failure.stderr_tail = "\x1b[2J\xff\n\ta tab\ncaf\xc3\xa9\n";
    std::vector<std::string> lines = to_lines({.failures = {failure}});
    CHECK(has(lines, "    \\x1b[2J\\xff"));
    CHECK(has(lines, "    \ta tab"));
    CHECK(has(lines, "    caf\xc3\xa9"));
  }

  TEST_CASE("of a line that was written over, the last state is shown") {
    rendezvous::Failure failure = boom();
    failure.traceback = "\r  0%|    |\r 50%|##  |\rstep 7\r\n";
    CHECK(has(to_lines({.failures = {failure}}), "    step 7"));
  }

  TEST_CASE("what a worker has said in passing is no cause") {
    rendezvous::Failure failure{.rank = 1,
                                .pid = 7,
                                .status = {.exit_code = 1},
                                .message = "ValueError: loss is NaN",
                                .stderr_tail =
                                    "GPU memory usage: 70 GB\n"
                                    "usage: it depends\n"
                                    "warning: cache: Permission denied\n"
                                    "no fused kernels: No module named 'apex'\n"
                                    "ValueError: loss is NaN"};
    CHECK(next_step({.failures = {failure}}).starts_with("correct what its last words above say"));
    failure.message = "PermissionError: [Errno 13] Permission denied: '/data'";
    CHECK(next_step({.failures = {failure}}).starts_with("give this user access"));
    failure.message.clear();
    CHECK(next_step({.failures = {failure}}).starts_with("install the module"));
    failure = {.rank = 1,
               .pid = 7,
               .status = {.exit_code = 2},
               .message = "t.py: error: unrecognized arguments: --lr",
               .stderr_tail = "usage: t.py [-h]\nt.py: error: unrecognized arguments: --lr"};
    CHECK(next_step({.failures = {failure}}).starts_with("correct the arguments"));
  }

  TEST_CASE("the kernel's word stands beside the signal, and the advice follows it") {
    rendezvous::Failure failure = boom();
    failure.status = {.signal = SIGKILL};
    failure.message.clear();
    failure.traceback.clear();
    CHECK(next_step({.failures = {failure}}).find("somebody else sent SIGKILL") == 0);
    failure.message = "the kernel's OOM killer: memory cgroup limit reached (limit 512 MiB)";
    CHECK(
        describe(failure) ==
        "rank 5 (local rank 1, pid 4211) on node7 was killed by SIGKILL; the kernel's OOM killer: "
        "memory cgroup limit reached (limit 512 MiB)");
    CHECK(next_step({.failures = {failure}}).find("give the job more memory") == 0);
  }

  TEST_CASE("what is no Python script is called so") {
    rendezvous::Failure failure = boom();
    failure.message = "SyntaxError: source code cannot contain null bytes";
    CHECK(next_step({.failures = {failure}}).starts_with("that is no Python script"));
    failure.traceback =
        "  File \"/home/u/run.sh\", line 2\n    echo hello\nSyntaxError: invalid syntax\n";
    CHECK(next_step({.failures = {failure}}) ==
          "that is no Python script; with --no-python its #! line says what runs it");
  }

  TEST_CASE("a worker that said nothing") {
    rendezvous::Failure failure{.status = {.exit_code = 3}};
    CHECK(next_step({.failures = {failure}}).find("--redirects=3") != std::string::npos);
    failure.log_path = "/logs/attempt_0/0";
    CHECK(next_step({.failures = {failure}})
              .starts_with("it said nothing on stderr: look at its logs, or put torch's @record"));
    // With --log-dir, and neither --redirects nor --tee.
    CHECK(next_step({.failures = {failure}, .keeps_output = false})
              .starts_with("it said nothing on stderr: run again with --redirects=3 and look"));
    // Under --tee.
    CHECK(next_step({.failures = {failure},
                     .log_loss = {.why = "the disk was full", .is_on_console = true}})
              .starts_with("it said nothing on stderr: look at its lines on the console, since"));
    CHECK(next_step({.failures = {failure}, .log_loss = {.why = "the disk was full"}})
              .starts_with("what it said is lost: make room on the disk of the logs"));
    failure.status = {.signal = SIGSEGV};
    CHECK(next_step({.failures = {failure}}).find("PYTHONFAULTHANDLER") != std::string::npos);
    failure.status = {.signal = SIGBUS};
    CHECK(next_step({.failures = {failure}}).starts_with("see whether /dev/shm, "));
    failure.status = {.signal = SIGABRT};
    CHECK(next_step({.failures = {failure}}).find("abort()") != std::string::npos);
    failure.message = "terminate called without an active exception";
    CHECK(next_step({.failures = {failure}}).find("destroy_process_group") != std::string::npos);
  }

  TEST_CASE("who only received another rank's tensor is not told to correct its own words") {
    rendezvous::Failure failure = boom();
    failure.stderr_tail =
        "  what():  [enforce fail at pair.cc:464] op.preamble.length <= op.nbytes. 500 vs 4. "
        "Received data size doesn't match expected size.\n";
    CHECK(next_step({.failures = {failure}}).find("TORCH_DISTRIBUTED_DEBUG") != std::string::npos);
    failure.stderr_tail =
        "train: all_reduce: the ranks do not call the same: rank 0 called all_reduce (sum) of "
        "Float "
        "[2, 3]; rank 1 called all_reduce (sum) of Float [3, 2]\n";
    CHECK(next_step({.failures = {failure}}).starts_with("correct the rank whose collective "));
    for (const char* words : {"RuntimeError: Connection closed by peer [10.0.0.2]:4711.\n",
                              "ncclRemoteError: A call failed.\n"}) {
      failure.stderr_tail = words;
      CHECK(next_step({.failures = {failure}}).find("which rank left first") != std::string::npos);
      CHECK(next_step({.failures = {failure}, .finished = {1}}) ==
            "see why rank 1 ended first, with exit code 0: this one still waited for it");
    }
    failure.message = "hung: no CPU time or heartbeat for 23 s";
    CHECK(next_step({.failures = {failure}, .finished = {1}}) ==
          "see why rank 1 ended first, with exit code 0: the others may wait for it; their stacks "
          "are in the log folders");
    failure.message.clear();
    failure.ended_before = {{.first = 4, .count = 4}};
    JobReport report{.exit_code = 1, .failures = {failure}, .finished = {1, 4}};
    CHECK(next_step(report).find("see why ranks 1, 4..7 ended first") == 0);
    CHECK(has(to_lines(report), "  had ended with exit code 0 before that: ranks 1, 4..7"));
  }

  TEST_CASE("a full /dev/shm is not a full disk, and a data loader's error is one's own") {
    rendezvous::Failure failure = boom();
    for (auto [words, step] :
         {std::pair{"RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2>: No "
                    "space left on device (28)",
                    "make /dev/shm larger"},
          {"OSError: [Errno 28] No space left on device: 'a.pt'", "make room on the disk"},
          {"RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is",
           "make /dev/shm larger"},
          {"RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ",
           "the kernel or"},
          {"RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly",
           "run with num_workers"},
          {"ValueError: Caught ValueError in DataLoader worker process 0.", "correct what its"}}) {
      failure.message = failure.stderr_tail = words;
      CHECK(next_step({.failures = {failure}}).starts_with(step));
    }
  }

  TEST_CASE("where the last words are no error, the code is what there is") {
    rendezvous::Failure failure{.status = {.exit_code = 3}};
    failure.stderr_tail = "INFO:root:epoch 3\n";
    CHECK(next_step({.failures = {failure}}).starts_with("its last words above are no error: "));
    failure.message = "KeyboardInterrupt";
    failure.status = {.signal = SIGINT};
    CHECK(next_step({.failures = {failure}}).find("KeyboardInterrupt") != std::string::npos);
  }

  TEST_CASE("a signal that was passed on to a worker without a handler") {
    JobReport report{
        .failures = {{.status = {.signal = SIGUSR2}}},
        .outside = OutsideSignal{
            .signal = "SIGUSR2", .reason = "signal", .words = "told from outside by SIGUSR2"}};
    CHECK(next_step(report).starts_with("SIGUSR2 came to ddprun and was passed on: "));
    CHECK(has(to_lines(report), "  signalled from outside: told from outside by SIGUSR2"));
    report.outside->signal = "SIGUSR1";
    CHECK(next_step(report).starts_with("somebody sent that signal"));
  }

  TEST_CASE("who comes back to a host with another secret is told of that") {
    JobReport report{.exit_code = 80,
                     .error =
                         "h:1, where the nodes meet, was lost: h:1 has another secret than this "
                         "node",
                     .loss = "h:1, where the nodes meet, was lost"};
    CHECK(next_step(report).find("the same secret") != std::string::npos);
  }

  TEST_CASE("a limit that was met is named") {
    rendezvous::Failure failure = boom();
    failure.stderr_tail = "RuntimeError: can't start new thread\n";
    CHECK(next_step({.failures = {failure}}).find("ulimit -u") != std::string::npos);
    failure.stderr_tail.clear();
    failure.message.clear();
    failure.traceback.clear();
    for (auto [signal, limit] : {std::pair{SIGXFSZ, "ulimit -f"}, {SIGXCPU, "ulimit -t"}}) {
      failure.status = {.signal = signal};
      CHECK(next_step({.failures = {failure}}).find(limit) != std::string::npos);
    }
  }

  TEST_CASE("what CUDA and NCCL say is told what to do about") {
    rendezvous::Failure failure = boom();
    for (auto [words, step] : {std::pair{"CUDA error: device-side assert triggered", "Assertion"},
                               {"CUDA error: invalid device ordinal", "--nproc-per-node=gpu"},
                               {"Duplicate GPU detected : rank 1 and rank 0", "LOCAL_RANK"}}) {
      failure.stderr_tail = words;
      CHECK(next_step({.failures = {failure}}).find(step) != std::string::npos);
    }
  }

  TEST_CASE("a node whose workers had succeeded may be wrong about the run") {
    JobReport report{.exit_code = 80, .error = "too few nodes came", .had_succeeded_here = true};
    CHECK(has(to_lines(report),
              "  the workers of this node had all succeeded: the run may have "
              "ended well on the others"));
    CHECK(next_step(report).starts_with("see on the other nodes whether the run has ended well"));
    CHECK(nlohmann::json::parse(to_json(report))["had_succeeded_here"] == true);
  }

  TEST_CASE("a job without a failed worker says why") {
    JobReport report{.exit_code = 80, .error = "worker store: bind: Address already in use"};
    CHECK(to_lines(report) ==
          std::vector<std::string>{"FAILED: worker store: bind: Address already in use",
                                   "  exit code: 80, the rendezvous failed",
                                   "  next: choose another port, or end the process that has this "
                                   "one: ss -ltnp shows it"});
    report.failures = {boom()};
    CHECK(has(to_lines(report), "  failures of workers before that:"));
    CHECK(nlohmann::json::parse(to_json(report))["root_cause"].is_null());
    CHECK(next_step(
              {.error = "n2 was lost (its agent, pid 7, was killed); then only 1 of 2 nodes came"})
              .starts_with("look at that node"));
  }

  TEST_CASE("what MUNGE refuses is to be looked at there, and not the endpoint") {
    auto next = [](const std::string& error) {
      return next_step({.error = "cannot meet the other nodes at h:1: h:1" + error});
    };
    CHECK(next(" does not use MUNGE, and this node does (--rdzv-auth)").find("same --rdzv-auth") !=
          std::string::npos);
    CHECK(next(": MUNGE: Socket communication error").find("munged runs") != std::string::npos);
    CHECK(next(": it is run by user 7 of the cluster (MUNGE)").find("same user") !=
          std::string::npos);
  }

  TEST_CASE("where no endpoint names a host, that is not what is to be looked at") {
    JobReport report{.error =
                         "cannot meet the other nodes at etcd at e1:2379: no member of etcd can "
                         "be used: connect to e1:2379: Connection refused"};
    CHECK(next_step(report).starts_with("see that etcd runs"));
    report.error = "cannot meet the other nodes at file:/shared/run1: connect: Connection refused";
    CHECK(next_step(report).starts_with("see that all nodes name the same folder"));
    report.error = "cannot meet the other nodes at file:/r: write /r/x: No space left on device";
    CHECK(next_step(report).starts_with("make room on the disk of that folder"));
    report.error = "cannot meet the other nodes at file:/r: open /r/x: Permission denied";
    CHECK(next_step(report).starts_with("see that this user may write"));
  }

  TEST_CASE("a host that closes the connection at once may refuse the address, or be full") {
    for (const char* why : {"Connection reset by peer", "Broken pipe", "End of file",
                            "n0:29400 closed the connection at once: it may not allow this"}) {
      JobReport report{.error = std::string("cannot meet the other nodes at n0:29400: greet n0: ") +
                                why};
      CHECK(next_step(report).starts_with("look at the host's log: it says whether it refuses"));
      report.error = std::string("the worker store: ") + why;
      CHECK(next_step(report).find("--allow") == std::string::npos);
    }
  }

  TEST_CASE("the exit code is explained, and what could not be ended is named") {
    JobReport report{.exit_code = 82,
                     .max_restarts = 1,
                     .failures = {boom(), boom()},
                     .stuck = {"rank 3 (local rank 3, pid 7) does not end"}};
    std::vector<std::string> lines = to_lines(report);
    CHECK(has(lines, "  exit code: 82, the one restart is spent"));
    CHECK(has(lines, "  left behind: rank 3 (local rank 3, pid 7) does not end"));
    report.failures.back().pid = 0;
    report.failures.back().message = "start x: Exec format error";
    CHECK(to_lines(report)[0] ==
          "FAILED: rank 5 on node7 could not be started: start x: Exec format error");
  }

  TEST_CASE("what could not be started is no worker's end: the code and the advice say so") {
    JobReport report{.exit_code = 81, .failures = {{.status = {.exit_code = 81}}}};
    report.failures[0].message = "local rank 0: start x: Too many open files";
    CHECK(
        has(to_lines(report), "  exit code: 81, this machine lacks what a worker needs to start"));
    CHECK(next_step(report).find("ulimit -n") != std::string::npos);
    report.failures[0].message = "local rank 0: start x: Resource temporarily unavailable";
    CHECK(next_step(report).find("ulimit -u") != std::string::npos);
    report.exit_code = report.failures[0].status.exit_code = 126;
    report.failures[0].message = "local rank 0: start x: Argument list too long";
    CHECK(has(to_lines(report), "  exit code: 126, the program cannot be executed"));
    CHECK(next_step(report).starts_with("pass fewer arguments"));
    report.failures[0].message = "local rank 0: start x: No such file or directory";
    CHECK(next_step(report).find("the program that its first line names") != std::string::npos);
    report.failures[0].pid = 7;
    CHECK(has(to_lines(report), "  exit code: 126, the worker's own"));
  }

  TEST_CASE("the slowest worker is named") {
    JobReport report{.exit_code = 9, .failures = {boom()}};
    CHECK_FALSE(has(to_lines(report), "  pace: "));
    report.slowest = "rank 7 (node2) was the slowest: behind for 20 s of 40 s of training";
    CHECK(has(to_lines(report), "  pace: " + report.slowest));
  }

  TEST_CASE("report.json holds the same, whatever bytes a worker wrote") {
    rendezvous::Failure failure = boom();
    failure.status = {.signal = SIGSEGV};
    failure.stderr_tail = "bad \xff byte\n";
    auto json = nlohmann::json::parse(to_json({.run_id = "r",
                                               .exit_code = 139,
                                               .failures = {failure},
                                               .victims = {{.rank = 2}},
                                               .finished = {0, 1},
                                               .slowest = "rank 7 was the slowest"}));
    CHECK(json["version"] == 1);
    CHECK(json["exit_code"] == 139);
    CHECK(json["root_cause"]["signal"] == "SIGSEGV");
    CHECK(json["root_cause"]["exit_code"] == 139);
    CHECK(json["root_cause"]["node"] == "node7");
    CHECK(json["failures"].size() == 1);
    CHECK(json["victims"][0]["stopped_by_ddprun"] == false);
    CHECK(json["finished"] == nlohmann::json({0, 1}));
    CHECK(json["error"].is_null());
    CHECK(json["slowest"] == "rank 7 was the slowest");
    CHECK(json["next_step"].is_string());
  }

  TEST_CASE("report.json of a run that has succeeded has what it survived, and no cause") {
    auto json = nlohmann::json::parse(to_json({.run_id = "r",
                                               .exit_code = 0,
                                               .max_restarts = 3,
                                               .failures = {boom()},
                                               .time = TimeAccount{}}));
    CHECK(json["exit_code"] == 0);
    CHECK(json["root_cause"].is_null());
    CHECK(json["error"].is_null());
    CHECK(json["next_step"].is_null());
    CHECK(json["failures"].size() == 1);
    CHECK(json["time"]["up"].is_number());
  }
}
