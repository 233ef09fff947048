// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/whereabouts.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::agent;
using rendezvous::Finding;
using rendezvous::Whereabouts;

namespace {

Whereabouts place(process::Activity activity, const std::string& in, bool has_timed_out = false) {
  WorkerView worker{.activity = std::move(activity)};
  if (has_timed_out) worker.timed_out.emplace();
  return finding_of(worker, {.in = in}).place;
}

}  // namespace

TEST_SUITE("agent/decide/whereabouts") {
  TEST_CASE("by the stack") {
    CHECK(place({}, "all_reduce") == Whereabouts::Unknown);
    CHECK(place({.is_waiting = true}, "") == Whereabouts::Waits);
    CHECK(place({.is_waiting = false}, "") == Whereabouts::Elsewhere);
  }

  TEST_CASE("one that has timed out, too, is on its way to its end, whatever its stack") {
    CHECK(place({.is_waiting = false}, "all_reduce", true) == Whereabouts::Waits);
    WorkerView worker{.timed_out = rendezvous::TimedOutWait{.in = "all_reduce"}};
    CHECK(finding_of(worker, {.in = "all_reduce"}).place == Whereabouts::Waits);
    CHECK(finding_of(worker, {.in = "broadcast"}).place == Whereabouts::Elsewhere);
    CHECK(finding_of(worker, {.in = "broadcast"}).doing == "waited in all_reduce");
  }

  TEST_CASE("another collective is elsewhere, where both names are of the same kind") {
    process::Activity barrier{
        .is_waiting = true, .collective = "barrier", .text = "is in main (a.py:3)"};
    CHECK(place(barrier, "barrier") == Whereabouts::Waits);
    CHECK(place(barrier, "") == Whereabouts::Waits);
    CHECK(place(barrier, "BARRIER") == Whereabouts::Waits);  // NCCL's
    CHECK(place(barrier, "all_reduce") == Whereabouts::Elsewhere);
    CHECK(finding_of({.activity = barrier}, {.in = "all_reduce"}).doing ==
          "waits in barrier, is in main (a.py:3)");
    CHECK(place({.is_waiting = true, .collective = "send"}, "recv") == Whereabouts::Waits);
  }

  TEST_CASE("who works is in no wait that takes no CPU time, unless its stack says so") {
    auto at_work = [](process::Activity activity, bool is_idle) {
      return finding_of({.activity = std::move(activity), .is_busy = true}, {.is_idle = is_idle});
    };
    CHECK(at_work({}, true).place == Whereabouts::Elsewhere);
    CHECK(at_work({}, true).doing == "is at work");
    CHECK(at_work({.place = "spin (train.py:36)"}, true).doing ==
          "is at work in spin (train.py:36)");
    CHECK(at_work({}, false).place == Whereabouts::Unknown);  // NCCL's waits turn
    CHECK(at_work({.is_waiting = true}, true).place == Whereabouts::Waits);
  }

  TEST_CASE("of very many the suspects are kept") {
    rendezvous::Findings findings;
    for (int rank = 0; rank < 500; ++rank) findings.workers.push_back({.rank = rank});
    findings.workers.back().place = Whereabouts::Elsewhere;
    limit(findings);
    CHECK(findings.workers.size() == rendezvous::Findings::kMaxWorkers);
    CHECK(findings.workers.front().rank == 499);
  }
}
