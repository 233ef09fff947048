// SPDX-License-Identifier: BSD-3-Clause
//
// What has happened to the runs of one host, for people: its rounds and stops, and how long it was
// in each phase.  It looks at a run's state after each step and decides nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/decide/node_events.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

// One thing that has happened to a run.
struct Happening {
  enum class Kind : std::uint8_t { RoundBegan, RoundStopped, RunEnded };

  Kind kind = Kind::RoundBegan;
  WallTime at{};  // by the host's clock
  std::uint64_t round = 0;
  int nodes = 0;    // of a round
  int workers = 0;  // of a round
  // Of a stop its word_of(), and a sentence.  That has the words of a worker, which are for some
  // readers only; `briefly` has not.
  std::string cause{};
  std::string why{};
  std::string briefly{};
};

// A node of a round that was lost with its workers: it did not leave, and its workers had not
// succeeded.
struct LostNode {
  std::string id{};
  std::string host{};
  int workers = 0;
  int group_rank = 0;
  int base_rank = 0;
  std::uint64_t round = 0;
  MonoTime at{};  // when it was given up
};

// One is shown until the next round has begun, and so long at least.
inline constexpr Duration kLostShown = std::chrono::seconds(15);

// Of a run so many are kept, the last.
inline constexpr std::size_t kKeptHappenings = 256;

// Of so many runs that are gone.
inline constexpr std::size_t kKeptEnded = 32;

inline constexpr std::size_t kPhases = 4;  // of coordinator::Phase

// Where the time of a run has gone.  None of these ever becomes less.
struct RunTimes {
  Duration waiting{};
  // Until all workers run on each node: of an older agent that is not known, and a round of such
  // nodes trains at once.
  Duration starting{};
  Duration training{};
  Duration stopping{};
  // From the end of training until training went on, by what stopped the round (word_of()).
  std::map<std::string, Duration> restarting{};
  // Of the training, since the last sign of life of workers that were then ended for it: it is
  // known once the round is stopped.
  Duration hanging{};
};

struct RunChronicle {
  std::string run_uuid{};
  WallTime began{};
  std::deque<Happening> happenings{};
  std::size_t happened = 0;  // with those that are not kept
  std::array<Duration, kPhases> spent{};
  std::map<std::string, std::uint64_t> stops{};  // by cause, ever
  NodeEvents nodes{};
  std::map<std::string, LostNode> members{};  // of the last round, those that may be lost yet
  std::vector<LostNode> lost{};               // by rank
  std::size_t node_count = 0;                 // of the run, at the last look

  coordinator::Phase phase = coordinator::Phase::Gathering;
  MonoTime since{};  // in that phase
  std::uint64_t rounds = 0;
  std::uint64_t round = 0;            // the last
  std::set<std::string> starting_on;  // in Running: nodes that have not said yet that theirs run
  Duration starting{};                // of the time in Running, without the present start
  // A round was stopped for this, when, and no other one trains yet.
  struct Interruption {
    std::string cause;
    MonoTime at{};
  };
  std::optional<Interruption> interruption{};
  std::map<std::string, Duration> restarting{};  // see RunTimes
  Duration hanging{};                            // likewise
};

class Chronicle {
 public:
  // This message was handled, which changes its own run only; nullptr: that is gone.
  void heard(const Message& message, const coordinator::State* state, Now now);
  // A step may have changed this run; nullptr: it is gone.  Others it has not changed.
  void look(const std::string& run, const coordinator::State* state, Now now);
  const RunChronicle* find(const std::string& run) const;
  // Of a run that is gone, one of the last kKeptEnded; nullptr: not known any more.
  const RunChronicle* find_ended(const std::string& run, const std::string& run_uuid) const;

 private:
  RunChronicle& entry_of(const std::string& run, const coordinator::State& state, Now now);
  void end(const std::string& run);

  struct Ended {
    std::string run;
    RunChronicle chronicle;
  };
  std::map<std::string, RunChronicle> runs_;
  std::deque<Ended> ended_;  // oldest first
};

// With what the present phase has taken so far.
RunTimes times_until(const RunChronicle& chronicle, MonoTime now);

// What word_of() says, in this order.
inline constexpr std::array<std::string_view, 6> kStopWords{"failed",  "lost",       "left",
                                                            "cut_off", "rendezvous", "joined"};

// By what a round was stopped: one of kStopWords.
std::string_view word_of(const command::Stop& stop);

}  // namespace ddprun::rendezvous
