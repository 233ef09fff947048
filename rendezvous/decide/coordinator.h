// SPDX-License-Identifier: BSD-3-Clause
//
// Who decides about one run: which nodes are in the next round and with which ranks, whether a
// failure is survived, and when it is over.  There is one coordinator a run, beside the store that
// the nodes meet in.  step() takes what is known, one thing that has happened, and the time; it
// returns what is known now and what must be said to whom.  It sends nothing, waits for nothing and
// reads no clock, so a test plays a thousand nodes through it from a seed (tests/sim).
//
// rendezvous/PROTOCOL.md has the messages, coordinator_service.h the shell.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/outgoing.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

namespace event {
struct Arrived {
  std::string node;
  Request request;
  std::uint64_t connection = 0;
};
struct Tick {};
// What had reached the inbox at action::Mark has been read.
struct MarkRead {
  std::uint64_t number = 0;
};
// The host of this coordinator is about to go.  Where another node can host the run, and enough are
// left without this one, the run is handed over: no round begins here any more, and the others find
// that this host is gone.  Else the run ends.
struct HostLeaves {
  std::string why;  // "node0, which hosts the rendezvous, was stopped by SIGTERM"
  int signal = 0;   // that one
};
// The host goes soon, and has no part in this run: where another node can host it, it is handed
// over, and its workers are stopped for that.  Else it goes on here.
struct HandOver {
  std::string why;
};
// The run has another host, and waits here: all nodes go there.
struct GivesWay {
  Endpoint to;
  std::string why;
};
// All nodes here are to be told this.
struct SaysToAll {
  std::string text;
};
// Another start of this run goes on there, begun without a word of this one.
struct OtherStartFound {
  Endpoint at;
};
// What the endpoint says to a host that stood still and is_in_doubt().
struct DoubtSettled {
  // A start of the run that knows nothing of this one goes on there.  Nothing: none does.
  std::optional<Endpoint> other_start_at{};
};
// A person wants to see the stacks of all workers, or of this rank; see stack_inquiry.h.
struct StacksWanted {
  std::optional<int> rank{};
};
// A person wants the files of the nodes; see bundle_inquiry.h.
struct BundleWanted {
  BundleTarget target;
};
// Which workers are seen to be slow; see pace.h.
struct PaceSeen {
  Pace pace;
};
}  // namespace event
using Event =
    std::variant<event::Arrived, event::Tick, event::MarkRead, event::HostLeaves, event::HandOver,
                 event::GivesWay, event::SaysToAll, event::OtherStartFound, event::DoubtSettled,
                 event::StacksWanted, event::BundleWanted, event::PaceSeen>;

struct Step {
  State state;
  std::vector<Action> actions;
};

[[nodiscard]] Step step(State state, const Event& event, Now now);

// When a Tick is due, if nothing happens before; nothing while there is no node.
std::optional<MonoTime> deadline(const State& state);

// Whether no node is left, so that the run can be forgotten.
bool is_over(const State& state);

// Whether the run is handed over, and the host's own node has no workers any more.
bool is_handed_over(const State& state);

// Whether a node is here that goes on when the host has gone: it was not told to stop itself.
bool has_successor(const State& state);

}  // namespace ddprun::rendezvous::coordinator
