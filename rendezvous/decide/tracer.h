// SPDX-License-Identifier: BSD-3-Clause
//
// Sees what happens to the runs of one host, as events of a trace.  Like the chronicle it looks at
// a run's state after each step and decides nothing.  What workers have said is in no event, so a
// trace is for all readers of the pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/decide/run_state.h"
#include "rendezvous/decide/trace.h"

namespace ddprun::rendezvous {

// Of all runs together so many events are kept for the pages, the last: about 8 MB.
inline constexpr std::size_t kKeptTraceEvents = 32768;

class Tracer {
 public:
  using Sink = std::function<void(const std::string& run, const TraceEvent& event)>;

  // A step may have changed this run, and of its nodes this one, or any where it is empty; nullptr:
  // the run is gone.  `sink` gets the events, too, where there is one.
  void look(const std::string& run, const coordinator::State* state, const std::string& node,
            WallTime now, const Sink& sink);

  // All events have numbers in the order in which they came; these are kept.
  std::uint64_t first() const { return end_ - kept_.size(); }
  std::uint64_t end() const { return end_; }
  // One that is kept, and the run that it is of.
  const std::pair<std::string, TraceEvent>& at(std::uint64_t number) const {
    return kept_.at(number - first());
  }

 private:
  struct SeenNode {
    std::string host;
    bool is_up = false;
    bool is_standby = false;
    bool is_away = false;
    bool is_leaving = false;
    int workers = 0;
  };
  struct SeenRun {
    std::string run_uuid;
    std::string span;  // what is open on the run's own thread
    coordinator::Phase phase = coordinator::Phase::Ended;
    std::uint64_t round = 0;
    std::map<std::string, SeenNode> nodes;
  };
  struct Looking;

  void look_at_run(Looking& look, SeenRun& seen, const coordinator::State& state);
  void look_at_node(Looking& look, SeenRun& seen, const std::string& id,
                    const coordinator::State& state, bool is_other_round);
  void add(Looking& look, TraceEvent event);

  std::map<std::string, SeenRun> runs_;
  std::deque<std::pair<std::string, TraceEvent>> kept_;
  std::uint64_t end_ = 0;
};

}  // namespace ddprun::rendezvous
