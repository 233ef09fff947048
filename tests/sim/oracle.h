// SPDX-License-Identifier: BSD-3-Clause
//
// What must always hold.  The oracle sees every message that a coordinator takes, every step it
// makes, and what the agents do; it keeps books of its own and compares.  README.md lists the
// properties in words.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/decide/runs.h"

namespace ddprun::sim {

class World;
class Host;
class Node;

// A round as it was published, all over the simulation.
struct PublishedRound {
  std::string run;
  std::uint64_t number = 0;
  std::string by;
  std::string run_uuid;
  Duration at{};
  std::vector<Node*> members;
};

// What is known of one run at one host.
struct RunBook {
  std::optional<std::uint64_t> number;
  std::size_t index = 0;             // of that round, of all of the simulation
  std::map<std::string, int> ranks;  // of the last round's members
  std::set<std::string> known;       // the nodes after the last step
  std::set<std::string> gone;        // has left or was lost, and the coordinator was told
  std::size_t gone_before = 0;
  std::map<std::string, std::uint64_t> refused;  // on which connection
  std::uint64_t messages = 0;                    // without beats
  std::uint64_t commands = 0;                    // without texts for people
  std::uint64_t allowed_messages = 0;
  std::uint64_t allowed_commands = 0;
  MonoTime stops_since{};  // the last thing that a stop may wait for, by the clock of the host
  std::optional<Duration> enough_since;
  bool is_ended = false;
};

class Oracle {
 public:
  explicit Oracle(World& world) : world_(world) {}

  void heard(Host& host, const rendezvous::Message& message);
  void stepped(Host& host, const rendezvous::runs::State& state,
               const std::vector<rendezvous::runs::Action>& actions);
  void failure_reported(const std::string& run) { ++failures_[run]; }
  // A node hears that the run waits since the loss `why`.
  void waits(const Node& node, const std::string& why) const;
  void at_the_end();
  bool is_the_lost(const Node& node) const;
  bool is_of_the_lost(const Node& node) const;
  void check_one_loss() const;
  bool had_all_before_the_loss() const;
  // The workers of a node that were held go on.
  void goes_on(const Node& node);

  // Whether all members of a round run their workers, or have run them to success.
  bool is_whole(std::size_t round) const;
  const PublishedRound& round(std::size_t index) const { return rounds_[index]; }
  // Of a node that was told of a round: its index.
  std::size_t index_of(const Node& node, const rendezvous::command::Round& round) const;

  std::uint64_t messages = 0;
  std::uint64_t rounds_count() const { return rounds_.size(); }

 private:
  using Published = std::vector<std::pair<std::string, rendezvous::command::Round>>;
  using Sends = std::vector<const rendezvous::runs::action::Send*>;

  void stepped(Host& host, const std::string& run, const rendezvous::coordinator::State& state,
               const Sends& sends);
  RunBook& book(const Host& host, const std::string& run) { return books_[{&host, run}]; }
  void check_sends(Host& host, RunBook& book, const rendezvous::coordinator::State& state,
                   const Sends& sends);
  void check_end(Host& host, const RunBook& book, const rendezvous::coordinator::State& state,
                 const std::string& node, const rendezvous::command::End& end);
  void check_success(const RunBook& book, const rendezvous::coordinator::State& state);
  void check_round(Host& host, RunBook& book, const std::string& run,
                   const rendezvous::coordinator::State& state, const Published& round);
  void check_ranks(const rendezvous::coordinator::State& state, const Published& round);
  void check_stickiness(const RunBook& book, const rendezvous::coordinator::State& state,
                        const Published& round);
  bool is_flapping(const rendezvous::coordinator::State& state, const std::string& host) const;
  void check_recipients(const std::string& run, const rendezvous::coordinator::State& state,
                        const Published& round);
  bool may_begin_twice(bool has_all) const;
  void check_all_dead(const Host& host, const std::string& run, const std::string& run_uuid,
                      bool has_all);
  void check_state(const rendezvous::coordinator::State& state);
  void check_waits(Host& host, RunBook& book, const rendezvous::coordinator::State& state);
  int budget() const;
  void require(bool holds, const std::string& what) const;

  World& world_;
  std::map<std::pair<const Host*, std::string>, RunBook> books_;
  std::map<std::string, int> failures_;  // reported by agents, of each run
  std::vector<PublishedRound> rounds_;
  std::map<std::pair<const Host*, std::string>, int> ended_;  // by run_uuid: with what exit code
  std::map<std::pair<std::string, std::uint64_t>, std::size_t> told_;  // node and number -> index
};

}  // namespace ddprun::sim
