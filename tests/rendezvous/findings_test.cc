// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/findings.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

struct Case {
  Failure failure{.rank = 0,
                  .pid = 30,
                  .node = "node1",
                  .status = {.exit_code = 1},
                  .message = "RuntimeError: Timed out"};
  Inquiry inquiry;

  Case& saw(int rank, Whereabouts place, const std::string& doing = "") {
    inquiry.add("node" + std::to_string(rank + 1),
                {.workers = {{.rank = rank, .pid = 30 + rank, .place = place, .doing = doing}}});
    return *this;
  }
  Case& unconnected(int rank) {
    inquiry.unconnected.push_back({.rank = rank, .pid = 30 + rank});
    return *this;
  }
  std::string judged(const TimedOutWait& wait) {
    name_suspects(failure, wait, inquiry);
    return failure.suspects.empty() ? "" : describe_suspects(failure);
  }
};

}  // namespace

TEST_SUITE("rendezvous/decide/findings") {
  TEST_CASE("a rank that never connected, with what it does") {
    CHECK(
        Case()
            .saw(1, Whereabouts::Elsewhere, "sleeps in load (data.py:40)")
            .unconnected(1)
            .judged({.in = kInit}) ==
        "rank 1 (node2, pid 31) never reached init_process_group: it sleeps in load (data.py:40)");
  }

  TEST_CASE("one that has ended is known by the store alone") {
    CHECK(Case().unconnected(1).judged({.in = kInit}) ==
          "rank 1 (pid 31) never reached init_process_group");
  }

  TEST_CASE("a store that misses one who waits knows other processes than those that connect") {
    CHECK(Case().unconnected(0).unconnected(1).judged({.in = kInit}).empty());
    Case other;
    other.saw(1, Whereabouts::Waits).unconnected(1).unconnected(2);
    CHECK(other.judged({.in = kInit}).empty());
  }

  TEST_CASE("the ranks that the words name") {
    CHECK(Case().judged({.in = "monitored_barrier", .missing = {3}}) ==
          "rank 3 did not come to monitored_barrier");
    // Gloo names the first that it waits for, which may wait for another one itself.
    Case chain;
    chain.saw(1, Whereabouts::Waits).saw(2, Whereabouts::Elsewhere, "sleeps");
    CHECK(chain.judged({.in = kInit, .missing = {1}}) ==
          "rank 2 (node3, pid 32) did not come to init_process_group: it sleeps");
    CHECK(chain.failure.also_waited == 1);
  }

  TEST_CASE("the stacks alone") {
    Case two;
    two.saw(1, Whereabouts::Waits).saw(2, Whereabouts::Elsewhere).saw(3, Whereabouts::Unknown);
    CHECK(two.judged({.in = "all_reduce"}) == "rank 2 (node3, pid 32) did not come to all_reduce");
    CHECK(two.failure.also_waited == 1);
    CHECK(describe(two.failure) ==
          "rank 2 (node3, pid 32) did not come to all_reduce; rank 0 (local rank 0, pid 30) on "
          "node1 waited for it and exited with code 1: RuntimeError: Timed out");
  }

  TEST_CASE("nobody is named where nothing is known") {
    Case none;
    none.saw(1, Whereabouts::Unknown).saw(2, Whereabouts::Waits);
    CHECK(none.judged({}).empty());
    CHECK(none.failure.waited_in == "a collective");
    CHECK(describe(none.failure) ==
          "rank 0 (local rank 0, pid 30) on node1 exited with code 1: RuntimeError: Timed out");
  }

  TEST_CASE("where all others are known to have waited, the one is named that is left") {
    Case one;
    one.saw(1, Whereabouts::Unknown, "is in lock (train.py:27)").saw(2, Whereabouts::Waits);
    CHECK(one.judged({.in = "all_reduce", .is_idle = true}) ==
          "rank 1 (node2, pid 31) did not come to all_reduce: it is in lock (train.py:27)");
    CHECK(Case()
              .saw(1, Whereabouts::Unknown)
              .saw(2, Whereabouts::Unknown)
              .judged({.in = "all_reduce", .is_idle = true})
              .empty());
  }

  TEST_CASE("the rank that failed is none of the others that waited") {
    Case four;
    four.saw(0, Whereabouts::Waits).saw(1, Whereabouts::Waits).saw(3, Whereabouts::Waits);
    four.saw(2, Whereabouts::Elsewhere, "sleeps");
    CHECK(four.judged({.in = "all_reduce"}) ==
          "rank 2 (node3, pid 32) did not come to all_reduce: it sleeps");
    CHECK(four.failure.also_waited == 2);
    // It is one of those that are known to have waited, though.
    const TimedOutWait wait{.in = "all_reduce", .is_idle = true};
    for (bool is_seen : {false, true}) {
      Case few;
      if (is_seen) few.saw(0, Whereabouts::Waits);
      few.saw(1, Whereabouts::Waits).saw(2, Whereabouts::Unknown).saw(3, Whereabouts::Unknown);
      few.judged(wait);
      CHECK(few.failure.suspect_count == 2);
      CHECK(few.failure.also_waited == 1);
      few.failure = Case().failure;
      CHECK(few.saw(4, Whereabouts::Unknown).judged(wait).empty());
    }
  }

  TEST_CASE("of a lost peer those are named that had ended well") {
    const TimedOutWait lost{.in = "all_reduce", .has_lost_peer = true};
    Case ended;
    ended.saw(1, Whereabouts::Waits).saw(3, Whereabouts::Elsewhere, kHadEnded);
    CHECK(ended.judged(lost) ==
          "rank 3 (node4, pid 33) did not come to all_reduce: it had ended with exit code 0");
    Case none;
    none.saw(1, Whereabouts::Unknown, "sleeps");
    CHECK(none.judged(lost).empty());
    CHECK(none.failure.waited_in.empty());
  }

  TEST_CASE("of very many some are named") {
    Case many;
    for (int rank = 1; rank <= 100; ++rank) many.saw(rank, Whereabouts::Elsewhere);
    std::string text = many.judged({.in = "all_reduce"});
    CHECK(text.find("; 97 more") != std::string::npos);
    CHECK(many.failure.suspects.size() == kMaxSuspects);
    CHECK(many.failure.suspect_count == 100);
  }
}
