// SPDX-License-Identifier: BSD-3-Clause
//
// What a node says of itself, and to its own workers, by what it knows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/member_state.h"
#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/run_places.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::member {

// Who comes, or is back.
request::Join join_request(const State& state, const Config& config, MonoTime now);

// A sign of life.  Where other nodes may count on it, it says what this node has seen.
request::Heartbeat heartbeat(const State& state, const Config& config);

// No worker of it lives, and it says nothing more.
request::Left left_at_end(const State& state, MonoTime now);

// What stops its workers without a word of the coordinator.  It has had a round.
command::Stop stop_of_last(const State& state, LossKind loss, const std::string& why);

// What its guardian says for this node, on a connection of its own, once it has ended the workers
// of an agent that was killed.  It may change with every step.
Message last_message(const State& state, const Config& config, const std::string& why);

// What a later agent of its machine is to know of this node, should it die without a word; it may
// change with every step.  `knows` is empty where no other host counts on that.
Died memory(const State& state, const Config& config);

// Where a later agent of its machine finds the run, if this node is killed; empty: only where the
// user says, or the run has ended.
RunPlaces run_places(const State& state, const Config& config);

// What a node has to say at its end that has no connection to say it on, or whose coordinator goes
// with it: the others would wait for its workers, which are dead.  Nothing where the run is over,
// where no other node can host it and it was at no daemon, or where it is enough that Finished says
// it.  To be asked before that.
struct UnsaidLeft {
  Message message;
  std::vector<std::optional<Endpoint>> places;  // where the run may be, as in Knock
};
std::optional<UnsaidLeft> unsaid_left(const State& state, const Config& config, MonoTime now,
                                      bool host_goes = false);

}  // namespace ddprun::rendezvous::member
