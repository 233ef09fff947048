// SPDX-License-Identifier: BSD-3-Clause
//
// Which worker is called slow, and above all which is not.
#include "rendezvous/decide/pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <optional>

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

// Workers, two on a node, that are looked at every 2 s; the nodes' vitals are up to 2 s old.
struct Watched {
  int count = 8;
  bool has_hosts = true;
  std::function<std::optional<std::int64_t>(int rank, double s)> step = [](int, double) {
    return std::nullopt;
  };
  std::function<std::uint64_t(int rank, double s)> bytes = [](int, double) { return 0; };
  std::function<int(int rank, double s)> cpu = [](int, double) { return 100; };
  std::function<std::optional<std::int64_t>(int rank)> heartbeat_age_ms = [](int) {
    return std::nullopt;
  };
  std::function<bool(int rank, double s)> has_ended = [](int, double) { return false; };

  // For how many ms it has waited at the store.
  std::function<std::optional<int>(int rank, double s)> waits = [](int, double) {
    return std::nullopt;
  };

  PaceWatch watch;
  double at = 0;
  std::uint64_t looks = 0;

  // Looks until `end`, in seconds; whether a worker was called slow at any time.
  bool named_until(double end, std::uint64_t round = 0) {
    bool has_named = false;
    for (; at < end; at += 2) {
      std::vector<RankSample> samples;
      ++looks;
      for (int rank = 0; rank < count; ++rank) {
        if (has_ended(rank, at)) continue;
        double seen = std::max(0.0, at - 0.25 * ((rank / 2) % 8));
        samples.push_back({.rank = rank,
                           .pid = 1000 + rank,
                           .host = has_hosts ? "node" + std::to_string(rank / 2) : "",
                           .number = looks,
                           .step = step(rank, seen),
                           .output_bytes = bytes(rank, seen),
                           .cpu_percent = cpu(rank, at),
                           .heartbeat_age_ms = heartbeat_age_ms(rank)});
      }
      auto now = MonoTime(1h) + std::chrono::milliseconds(static_cast<std::int64_t>(at * 1000));
      StoreWaits known{.world_size = count};
      for (int rank = 0; rank < count; ++rank) {
        if (auto since = waits(rank, at))
          known.waits.push_back({.pid = 1000 + rank, .since = std::chrono::milliseconds(*since)});
      }
      watch.look(round, samples, now, known);
      has_named |= !watch.pace().behind.empty() || !watch.pace().slowest.empty();
    }
    return has_named;
  }
};

std::int64_t steps(double s, double a_second) {
  return static_cast<std::int64_t>(s * a_second);
}

// What a program shows that knows nothing of heartbeat files, and writes nothing.
std::optional<int> all_but_rank_5(int rank, double s) {
  if (rank == 5 || s < 4) return std::nullopt;
  return static_cast<int>((s - 4) * 1000);
}

}  // namespace

TEST_SUITE("rendezvous/decide/pace") {
  TEST_CASE("a worker whose steps fall behind is named, with its node and by how much") {
    Watched workers;
    workers.step = [](int rank, double s) { return steps(s, rank == 7 ? 5 : 10); };
    CHECK(workers.named_until(120));
    Pace pace = workers.watch.pace();
    REQUIRE(pace.behind.size() == 1);
    CHECK(pace.behind[0].rank == 7);
    CHECK(pace.behind[0].host == "node3");
    CHECK(pace.behind[0].why.starts_with("is 58 s behind: it is at step 58"));
    CHECK(pace.slowest.starts_with("rank 7 (node3) was the slowest: behind for 1 min "));
    CHECK(pace.slowest.find(" of 1 min 58 s of training, by up to 58 s") != std::string::npos);
  }

  TEST_CASE("the only other worker is enough to compare with") {
    Watched workers{.count = 2};
    workers.step = [](int rank, double s) { return steps(s, rank == 0 ? 1 : 10); };
    workers.named_until(60);
    REQUIRE(workers.watch.pace().behind.size() == 1);
    CHECK(workers.watch.pace().behind[0].rank == 0);
  }

  TEST_CASE("a worker for which the others wait in every long step is named") {
    Watched workers;
    // It needs 25 s for what the others do in 5 s; all beat before they wait.
    workers.step = [](int rank, double s) {
      double in_step = s - 25.0 * static_cast<double>(steps(s, 0.04));
      return steps(s, 0.04) + (rank != 3 && in_step > 5 ? 1 : 0);
    };
    CHECK(workers.named_until(600));
    CHECK(workers.watch.pace().slowest.starts_with("rank 3 (node1) was the slowest"));
  }

  TEST_CASE("workers that keep step are not named, at any pace, nor when all stand still") {
    for (double pace : {0.01, 0.3, 10.0, 1000.0}) {
      CAPTURE(pace);
      Watched workers;
      workers.step = [pace](int, double s) { return steps(s > 300 ? 300 : s, pace); };
      CHECK_FALSE(workers.named_until(900));
    }
  }

  TEST_CASE("steps that begin anew with every epoch are no sign of slowness") {
    for (double epoch : {1.0, 7.0, 60.0}) {
      CAPTURE(epoch);
      Watched workers;
      workers.step = [epoch](int, double s) {
        return steps(s, 10) % static_cast<std::int64_t>(10 * epoch);
      };
      CHECK_FALSE(workers.named_until(600));
    }
  }

  TEST_CASE("numbers that are no steps are not compared") {
    Watched pids;
    pids.step = [](int rank, double) { return 1000 + 17 * rank; };
    CHECK_FALSE(pids.named_until(600));
    Watched mixed{.count = 2};
    mixed.step = [](int rank, double s) { return rank == 0 ? steps(s, 10) : 4711; };
    CHECK_FALSE(mixed.named_until(600));
  }

  TEST_CASE("steps of a few workers say nothing of the others") {
    Watched workers;
    workers.step = [](int rank, double s) -> std::optional<std::int64_t> {
      if (rank > 1) return std::nullopt;
      return steps(s, rank == 0 ? 1 : 10);
    };
    CHECK_FALSE(workers.named_until(600));
  }

  TEST_CASE("half of the workers that are slow are no exception any more") {
    Watched workers{.count = 9};
    workers.step = [](int rank, double s) { return steps(s, rank < 6 ? 1 : 10); };
    CHECK_FALSE(workers.named_until(300));
  }

  TEST_CASE("who remains when the others have finished is not slow") {
    Watched workers{.count = 4};
    workers.has_ended = [](int rank, double s) { return rank != 2 && s > 100; };
    workers.step = [](int, double s) { return steps(s, 10); };
    CHECK_FALSE(workers.named_until(300));
  }

  TEST_CASE("one long pause, such as a checkpoint, makes no worker the slowest of the run") {
    Watched workers;
    // The others have beaten once more when they wait for rank 0.
    workers.step = [](int rank, double s) {
      double done = s < 300 ? s : s < 360 ? 300 : s - 60;
      return steps(done, 10) + (rank > 0 && s > 300 && s < 360 ? 1 : 0);
    };
    CHECK(workers.named_until(350));
    CHECK(workers.watch.pace().behind.at(0).rank == 0);
    workers.named_until(900);
    CHECK(workers.watch.pace() == Pace{});
  }

  TEST_CASE("a node that says nothing new makes its workers not slow") {
    Watched workers;
    workers.step = [](int rank, double s) { return steps(rank == 7 && s > 60 ? 60 : s, 10); };
    workers.has_ended = [](int rank, double s) { return rank == 7 && s > 62; };
    CHECK_FALSE(workers.named_until(600));
  }

  TEST_CASE("another round is compared anew, and the run keeps who was slow") {
    Watched workers;
    workers.step = [](int rank, double s) { return steps(s, rank == 7 ? 2 : 10); };
    workers.named_until(100);
    workers.watch.pause();
    CHECK(workers.watch.pace().behind.empty());
    CHECK(workers.watch.pace().slowest.starts_with("rank 7 "));
    workers.step = [](int, double s) { return steps(s, 10); };
    workers.named_until(130, 1);
    CHECK(workers.watch.pace().behind.empty());
    CHECK(workers.watch.pace().slowest.starts_with("rank 7 "));
  }

  TEST_CASE("where only rank 0 logs, or some do now and then, output names no worker") {
    Watched rank_0;
    rank_0.bytes = [](int rank, double s) { return rank == 0 ? steps(s, 100) : 40; };
    CHECK_FALSE(rank_0.named_until(900));
    Watched stops;  // rank 0 logged, and has nothing to say any more
    stops.bytes = [](int rank, double s) { return rank == 0 ? steps(std::min(s, 60.0), 100) : 40; };
    CHECK_FALSE(stops.named_until(900));
    Watched pair{.count = 2};
    pair.bytes = [](int rank, double s) { return steps(rank == 1 ? std::min(s, 60.0) : s, 100); };
    CHECK_FALSE(pair.named_until(900));
    Watched all;  // and all stop together
    all.bytes = [](int rank, double s) { return steps(std::min(s, 60.0 + rank), 100); };
    CHECK_FALSE(all.named_until(900));
  }

  TEST_CASE("a worker that was silent from the beginning is not named") {
    Watched workers;
    workers.bytes = [](int rank, double s) { return rank == 5 ? 0 : steps(s, 100); };
    CHECK_FALSE(workers.named_until(900));
  }

  TEST_CASE("a worker that has fallen silent while all others write on is named") {
    Watched workers;
    workers.bytes = [](int rank, double s) { return steps(rank == 5 ? std::min(s, 60.0) : s, 9); };
    CHECK_FALSE(workers.named_until(110));
    CHECK(workers.named_until(200));
    Pace pace = workers.watch.pace();
    REQUIRE(pace.behind.size() == 1);
    CHECK(pace.behind[0].rank == 5);
    CHECK(pace.behind[0].why.starts_with("has written nothing for 2 min "));
    CHECK(pace.slowest.starts_with("rank 5 (node2) was the slowest: it has written nothing"));
    workers.bytes = [](int, double s) { return steps(s, 9); };
    workers.named_until(220);
    CHECK(workers.watch.pace() == Pace{});
  }

  TEST_CASE("who writes seldom may be silent for longer") {
    Watched workers;
    workers.bytes = [](int rank, double s) {
      return rank == 5 ? steps(std::min(s, 240.0), 1.0 / 30) : steps(s, 10);
    };
    CHECK_FALSE(workers.named_until(500));
    CHECK(workers.named_until(700));
  }

  TEST_CASE("the only node of a run needs no name") {
    Watched workers;
    workers.has_hosts = false;
    workers.step = [](int rank, double s) { return steps(s, rank == 7 ? 5 : 10); };
    CHECK(workers.named_until(120));
    CHECK(workers.watch.pace().slowest.starts_with("rank 7 was the slowest: behind for 1 min "));
    CHECK(PaceLines().of(0, workers.watch.pace()).at(0).starts_with("rank 7 is 58 s behind: "));
  }

  TEST_CASE("since when a worker has done nothing is kept") {
    Watched workers{.count = 6};
    workers.cpu = [](int rank, double s) { return rank == 1 && s > 50 ? 2 : s > 30 ? 1 : 50; };
    workers.bytes = [](int rank, double s) { return rank == 2 ? steps(s, 1) : 0; };
    workers.step = [](int rank, double s) { return rank == 3 ? std::optional(steps(s, 1)) : 7; };
    workers.heartbeat_age_ms = [](int rank) {
      return rank == 4 ? std::optional<std::int64_t>(29000) : std::nullopt;
    };
    workers.named_until(40);
    CHECK(workers.watch.pace().still.empty());  // for too short a time
    workers.named_until(48);
    using Still = std::map<int, MonoTime>;
    const MonoTime since = MonoTime(1h) + 30s;
    CHECK(workers.watch.pace().still == Still{{0, since}, {1, since}, {5, since}});
    workers.named_until(200);
    CHECK(workers.watch.pace().still == Still{{0, since}, {5, since}});
    workers.watch.pause();
    CHECK(workers.watch.pace().still.empty());
  }

  TEST_CASE("of a worker whose node says nothing new it is not known that it does nothing") {
    PaceWatch watch;
    for (int s = 0; s < 60; s += 2) {
      watch.look(0, {{.rank = 0, .number = s < 4 ? 1U + s : 5U, .cpu_percent = s < 4 ? 50 : 0}},
                 MonoTime(1h) + std::chrono::seconds(s));
      CHECK(watch.pace().still.empty());
    }
  }

  TEST_CASE("a slow worker has one line in each round") {
    PaceLines lines;
    Behind slow{.rank = 7, .host = "node3", .why = "is 11 s behind"};
    Behind other{.rank = 2, .host = "node1", .why = "is 10 s behind"};
    using Lines = std::vector<std::string>;
    CHECK(lines.of(0, {}).empty());
    CHECK(lines.of(0, {.behind = {slow}}) == Lines{"rank 7 (node3) is 11 s behind"});
    CHECK(lines.of(0, {}).empty());
    CHECK(lines.of(0, {.behind = {slow, other}}) == Lines{"rank 2 (node1) is 10 s behind"});
    CHECK(lines.of(1, {.behind = {slow}}) == Lines{"rank 7 (node3) is 11 s behind"});
  }

  TEST_CASE("who keeps the others waiting at their store is named, while it does and at the end") {
    Watched workers;
    workers.waits = all_but_rank_5;
    CHECK_FALSE(workers.named_until(14));
    CHECK(workers.named_until(30));
    REQUIRE(workers.watch.pace().behind.size() == 1);
    CHECK(workers.watch.pace().behind[0].rank == 5);
    CHECK(workers.watch.pace().behind[0].host == "node2");
    CHECK(workers.watch.pace().behind[0].why ==
          "has kept 7 other ranks waiting at the workers' store for 24 s");
    workers.waits = [](int, double) { return std::nullopt; };
    workers.named_until(60);
    CHECK(workers.watch.pace().behind.empty());
    CHECK(workers.watch.pace().slowest ==
          "rank 5 (node2) was the slowest: others waited for it at the workers' store for 24 s of "
          "58 s "
          "of training, up to 24 s at once");
    workers.named_until(600);
    CHECK(workers.watch.pace().slowest.empty());
  }

  TEST_CASE("waits name nobody where it is not clear who is waited for") {
    Watched half;  // as many wait as do not
    half.waits = [](int rank, double s) {
      return rank % 2 == 0 ? std::optional(static_cast<int>(s * 1000)) : std::nullopt;
    };
    CHECK_FALSE(half.named_until(120));
    Watched all;  // for something outside
    all.waits = [](int, double s) { return static_cast<int>(s * 1000); };
    CHECK_FALSE(all.named_until(120));
    Watched brief;  // again and again, as in any step
    brief.waits = [](int rank, double) { return rank == 5 ? std::nullopt : std::optional(3000); };
    CHECK_FALSE(brief.named_until(120));
    Watched mute;  // its node says the same all the time
    mute.waits = [](int rank, double) { return rank == 5 ? std::nullopt : std::optional(20'000); };
    mute.named_until(20);
    CHECK(mute.watch.pace().behind.empty());
    Watched ended{.has_ended = [](int rank, double) { return rank == 3; }};  // that is waited for
    ended.waits = all_but_rank_5;
    CHECK_FALSE(ended.named_until(120));
  }

  TEST_CASE("of two ranks one waits for the other") {
    Watched workers{.count = 2};
    workers.waits = [](int rank, double s) {
      return rank == 0 ? std::optional(static_cast<int>(s * 1000)) : std::nullopt;
    };
    CHECK(workers.named_until(20));
    CHECK(workers.watch.pace().behind[0].rank == 1);
  }
}
