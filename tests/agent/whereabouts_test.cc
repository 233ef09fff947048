// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/whereabouts.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::agent;
using rendezvous::Finding;
using rendezvous::Whereabouts;

namespace {

Whereabouts place(process::Activity activity, const std::string& in, bool has_timed_out = false) {
  return finding_of({.activity = std::move(activity), .has_timed_out = has_timed_out}, in).place;
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
  }

  TEST_CASE("another collective is elsewhere, where both names are of the same kind") {
    process::Activity barrier{
        .is_waiting = true, .collective = "barrier", .text = "is in main (a.py:3)"};
    CHECK(place(barrier, "barrier") == Whereabouts::Waits);
    CHECK(place(barrier, "") == Whereabouts::Waits);
    CHECK(place(barrier, "BARRIER") == Whereabouts::Waits);  // NCCL's
    CHECK(place(barrier, "all_reduce") == Whereabouts::Elsewhere);
    CHECK(finding_of({.activity = barrier}, "all_reduce").doing ==
          "waits in barrier, is in main (a.py:3)");
    CHECK(place({.is_waiting = true, .collective = "send"}, "recv") == Whereabouts::Waits);
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
