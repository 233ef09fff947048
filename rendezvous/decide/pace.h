// SPDX-License-Identifier: BSD-3-Clause
//
// Which worker of a run is slower than the others, for people.  Pure: it is shown the nodes' vitals
// every few seconds.  It names a worker only on clear evidence, so that what it says can be relied
// on; it may miss one.
//
// Steps: the numbers in the heartbeat files, where those of more than half of the workers grow.  A
// worker is behind if half of the workers have been at a later step for kBehind, and at most half
// of them are so.  Workers that wait for each other in every step are at one step, so of these the
// slow one is seen only if its program beats before it waits.  Numbers that begin anew, as those of
// epochs do, are compared again once those of all workers have.
//
// Output: a worker that has written again and again, and has been silent for kSilent while at least
// three quarters of the others, and three of them, write on.  So a run where only rank 0 logs shows
// nothing.
//
// Waits: more than half of all workers (the other one of two) have waited at the workers' store for
// kBehind, and all but at most kMostBehind wait there.  Those are the ones that are waited for.
//
// It also keeps since when a worker has done nothing: it has written nothing, has used next to no
// CPU time, is at the same step and has not touched its heartbeat file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/base/time.h"

namespace ddprun::rendezvous {
namespace coordinator {
struct State;
}

// How often a run is looked at, as often as vitals come.
inline constexpr Duration kPacePeriod = std::chrono::seconds(2);
inline constexpr Duration kBehind = std::chrono::seconds(10);
inline constexpr Duration kSilent = std::chrono::seconds(60);
// Who has done nothing for a shorter time is not kept in Pace.
inline constexpr Duration kStill = std::chrono::seconds(10);

// One worker of a round, by the last vitals of its node.
struct RankSample {
  int rank = 0;
  int pid = 0;
  std::string host{};        // of its node; empty: the run has no other
  std::uint64_t number = 0;  // of the vitals
  std::optional<std::int64_t> step{};
  std::uint64_t output_bytes = 0;
  int cpu_percent = 0;
  std::optional<std::int64_t> heartbeat_age_ms{};
};

// Of the workers of the run's round that have not ended.  `vitals`: the text of a node, which may
// be a stranger's; empty where there is none.
std::vector<RankSample> samples_of(const coordinator::State& run,
                                   const std::function<std::string(const std::string&)>& vitals);

// Who waits at the workers' store, as its node said last.
struct StoreWait {
  int pid = 0;
  Duration since{};
};
struct StoreWaits {
  int world_size = 0;  // 0: nothing is known, or not of all that wait
  std::vector<StoreWait> waits{};
};
// `waits` likewise gives the text of a node (worker_waits.h).
StoreWaits store_waits_of(const coordinator::State& run,
                          const std::function<std::string(const std::string&)>& waits);

// "rank 7 (node2)" and "is 41 s behind: it is at step 120, the others at 180".
struct Behind {
  int rank = 0;
  std::string host{};
  std::string why{};

  friend bool operator==(const Behind&, const Behind&) = default;
};

struct Pace {
  std::vector<Behind> behind{};  // now, the slowest first, at most kMostBehind
  // Of the whole run, a sentence: "rank 7 (node2) was the slowest: ..."; empty: none was.
  std::string slowest{};
  // By rank, since when a worker has done nothing, as far as this host has watched it.
  std::map<int, MonoTime> still{};

  friend bool operator==(const Pace&, const Pace&) = default;
};
inline constexpr std::size_t kMostBehind = 3;

// "rank 7 (node2)", or "rank 7" where there is no host.
std::string rank_text(int rank, const std::string& host);

// Of one run.
class PaceWatch {
 public:
  // The round trains; these are its workers.  Another round is compared anew.
  void look(std::uint64_t round, const std::vector<RankSample>& samples, MonoTime now,
            const StoreWaits& waits = {});
  // No round trains.
  void pause();
  Pace pace() const;

 private:
  struct Worker {
    std::string host;
    std::uint64_t number = 0;
    MonoTime seen{};  // when these vitals were new
    std::optional<std::int64_t> step{};
    int advances = 0;         // of its step, as seen
    int resets = 0;           // likewise: it became less
    Duration late{};          // how long ago half of the workers were at a later step
    int late_looks = 0;       // in a row that found it late
    bool is_counted = false;  // in Total, since it is late
    std::uint64_t output_bytes = 0;
    int pid = 0;
    MonoTime active{};              // when it was last seen to do something
    std::deque<MonoTime> writes{};  // the last kWrites looks that found more
  };
  using Who = std::pair<int, std::string>;  // rank and host
  struct Total {
    Duration late{};
    Duration most{};
    int times = 0;
  };

  bool update(const std::vector<RankSample>& samples, MonoTime now);
  std::optional<std::int64_t> common_step() const;
  void compare_steps(MonoTime now);
  void judge(MonoTime now, Duration passed);
  void count(const Who& who, Worker& worker, Duration passed);
  void see_waits(const std::vector<RankSample>& samples, const StoreWaits& waits, MonoTime now,
                 Duration passed);
  std::vector<Behind> behind_by_steps() const;
  std::vector<Behind> waited_for() const;
  std::optional<Behind> silent_one() const;
  std::map<int, MonoTime> still_ones() const;
  std::string slowest() const;

  std::optional<std::uint64_t> round_;
  std::map<int, Worker> workers_;  // by rank, of this round
  Duration longest_gap_{};         // between two vitals of a node, in this round
  // Steps that half of the workers had reached, and since when; the last kKeptSteps.
  std::deque<std::pair<std::int64_t, MonoTime>> reached_;
  std::vector<Who> waited_for_;  // now
  std::size_t waiting_ = 0;      // so many wait for them, and have for `waited_`
  Duration waited_{};
  MonoTime waited_changed_{};
  std::map<Who, Total> totals_;         // of all rounds, at most kMaxTotals
  std::map<Who, Total> waited_totals_;  // likewise, of those that were waited for
  Duration watched_{};                  // likewise
  std::optional<MonoTime> looked_at_;
};

// How the run is at this look; `vitals` and `waits` as above, which may be empty.
Pace pace_of(PaceWatch& watch, const coordinator::State& run,
             const std::function<std::string(const std::string&)>& vitals,
             const std::function<std::string(const std::string&)>& waits, MonoTime now);

// Lines about workers that have become slow, each worker once in a round.
class PaceLines {
 public:
  std::vector<std::string> of(std::uint64_t round, const Pace& pace);

 private:
  std::uint64_t round_ = 0;
  std::set<int> named_;  // the ranks, in this round
};

}  // namespace ddprun::rendezvous
