// SPDX-License-Identifier: BSD-3-Clause
//
// The last words of workers whose wait was over, as torch 2.15 writes them (Gloo; NCCL's are those
// of its reports), and of others.
#include "agent/decide/wait_words.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::agent;
using rendezvous::TimedOutWait;

namespace {

using Lines = std::vector<std::string>;

const std::string kModule =
    "[rank0]:   File "
    "\"/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py\", ";

// An exception in a function of torch.distributed, with its last line.
Lines raised(const std::string& function, const std::string& last) {
  return {
      "[rank0]: Traceback (most recent call last):",
      "[rank0]:   File \"/home/me/train.py\", line 17, in <module>",
      "[rank0]:     dist." + function + "(x)",
      "[rank0]:   File \"/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py\", "
      "line 83, in wrapper",
      "[rank0]:     return func(*args, **kwargs)",
      kModule + "line 4181, in " + function,
      "[rank0]:     work.wait()",
      "[rank0]: " + last};
}

const std::string kGloo =
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
    "Timed out waiting 3000ms for recv operation to complete";

const std::string kClosed =
    "RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:2999. "
    "This is typically caused by a remote worker crashing.";

}  // namespace

TEST_SUITE("agent/decide/wait_words") {
  TEST_CASE("a key of the store that names the rank whose address is missing") {
    Lines lines = {"Traceback (most recent call last):",
                   "  File \"/home/me/train.py\", line 8, in <module>",
                   "    dist.init_process_group('gloo', timeout=t)",
                   kModule + "line 2721, in init_process_group",
                   "    default_pg, _ = _new_process_group_helper(",
                   kModule + "line 3121, in _new_process_group_helper",
                   "    backend_result = creator_fn(dist_backend_opts, backend_options)",
                   kModule + "line 757, in _create_gloo_process_group",
                   "    backend_class = ProcessGroupGloo(",
                   "torch.distributed.DistStoreError: wait timeout after 3000ms, keys: "
                   "/default_pg/0//cpu//0/1"};
    CHECK(timed_out_wait(lines) == TimedOutWait{.in = "init_process_group", .missing = {1}});
    // A group of some ranks: its ranks are not those of the run.
    lines.back() =
        "torch.distributed.DistStoreError: wait timeout after 3000ms, keys: "
        "/default_pg/0//1//cpu//0/1";
    CHECK(timed_out_wait(lines)->missing.empty());
  }

  TEST_CASE("any other key of the store names nobody") {
    for (const char* key : {"/default_pg/0//nokey", "/default_pg/0//bkey/last_member"}) {
      CAPTURE(key);
      auto wait = timed_out_wait(
          Lines{"Traceback (most recent call last):",
                std::string("torch.distributed.DistStoreError: wait timeout after 3000ms, keys: ") +
                    key});
      REQUIRE(wait);
      CHECK(*wait == TimedOutWait{});
    }
  }

  TEST_CASE("a store that waits for all its clients") {
    auto wait = timed_out_wait(Lines{
        "torch.distributed.DistStoreError: Timed out after 4 seconds waiting for clients. 2/3 "
        "clients joined."});
    REQUIRE(wait);
    CHECK(wait->missing.empty());
  }

  TEST_CASE("Gloo, in whatever collective") {
    CHECK(timed_out_wait(raised("all_reduce", kGloo)) ==
          TimedOutWait{.in = "all_reduce", .is_idle = true});
    CHECK(timed_out_wait(raised("barrier", kGloo))->in == "barrier");
    // What torch calls itself is not what the program has called.
    Lines nested = raised("all_gather_object", kGloo);
    nested.insert(nested.end() - 1, kModule + "line 5430, in all_gather_single");
    CHECK(timed_out_wait(nested)->in == "all_gather_object");
    // work.wait() in the program itself.
    CHECK(timed_out_wait(Lines{"[rank0]: Traceback (most recent call last):",
                               "[rank0]:   File \"/home/me/train.py\", line 18, in <module>",
                               "[rank0]: " + kGloo}) == TimedOutWait{.is_idle = true});
  }

  TEST_CASE("monitored_barrier names the ranks") {
    Lines first =
        raised("monitored_barrier",
               "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms");
    first.push_back("[rank0]:  Original exception: ");
    first.push_back("[rank0]: " + kGloo);
    CHECK(timed_out_wait(first) ==
          TimedOutWait{.in = "monitored_barrier", .is_idle = true, .missing = {1}});
    CHECK(timed_out_wait(raised("monitored_barrier",
                                "RuntimeError: [Rank 0]: Ranks 1, 3, 12 failed to pass "
                                "monitoredBarrier in 3000 ms"))
              ->missing == std::vector{1, 3, 12});
    // The other ranks only know rank 0.
    Lines other = raised("monitored_barrier",
                         "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received "
                         "errors while waiting for send/recv from rank 0. Please check rank 0 logs "
                         "for faulty rank.");
    other.push_back("[rank2]:  Original exception: ");
    other.push_back("[rank2]: " + kGloo);
    CHECK(timed_out_wait(other) == TimedOutWait{.in = "monitored_barrier", .is_idle = true});
    other.back() = kClosed;
    CHECK(timed_out_wait(other) == TimedOutWait{.in = "monitored_barrier"});
  }

  TEST_CASE("NCCL's watchdog says which operation") {
    auto wait = timed_out_wait(
        Lines{"[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught "
              "collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, "
              "NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600060 "
              "milliseconds before timing out.",
              "terminate called after throwing an instance of 'c10::DistBackendError'"});
    CHECK(wait == TimedOutWait{.in = "ALLREDUCE"});
  }

  TEST_CASE("the C++ library names the ranks") {
    CHECK(
        timed_out_wait(Lines{"terminate called after throwing an instance of "
                             "'ddprun::ddp::DdpError'",
                             "  what():  ranks 1, 3..5 of 8 did not come to all_reduce within 2 s"})
            ->missing == std::vector{1, 3, 4, 5});
    CHECK(
        timed_out_wait(Lines{"  what():  barrier: rank 1 of 2 did not come within 2 s"})->missing ==
        std::vector{1});
  }

  TEST_CASE("an error file goes before stderr") {
    WorkerExit exit{.status = {.exit_code = 1}};
    exit.report.message = kGloo;
    CHECK(timed_out_wait(exit));
    exit.status = {};
    CHECK_FALSE(timed_out_wait(exit));
  }

  TEST_CASE("a peer that closes its connection may have waited in vain itself") {
    CHECK(lost_peer({.status = {.exit_code = 1}, .stderr_lines = raised("all_reduce", kClosed)}) ==
          TimedOutWait{.in = "all_reduce", .has_lost_peer = true});
    CHECK_FALSE(lost_peer({.status = {.exit_code = 1}, .stderr_lines = {"ValueError: boom"}}));
    CHECK(timed_out_wait(Lines{"RuntimeError: Application timeout caused pair closure"}));
  }

  TEST_CASE("every other end is none") {
    CHECK_FALSE(timed_out_wait(Lines{}));
    CHECK_FALSE(timed_out_wait(Lines{"ValueError: boom"}));
    CHECK_FALSE(timed_out_wait(Lines{"requests.exceptions.ReadTimeout: timed out"}));
    CHECK_FALSE(timed_out_wait(Lines{kClosed}));
    // A time-out that the program has survived, and another end.
    Lines survived = raised("all_reduce", kGloo);
    survived.push_back("Traceback (most recent call last):");
    survived.push_back("ValueError: boom");
    CHECK_FALSE(timed_out_wait(survived));
  }
}
