// SPDX-License-Identifier: BSD-3-Clause
//
// Where and when a node connects: which of the places of its run it tries next, and after what
// pause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rendezvous/decide/member.h"
#include "rendezvous/decide/member_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::member {

// For one step.  What it is given outlives it.
class Connector {
 public:
  Connector(State& state, std::vector<Action>& actions, MonoTime now, const Config& config)
      : state_(state), actions_(actions), now_(now), config_(config) {}

  // A node that is not connected: at the place where a coordinator has sent it, or else at the
  // endpoint that the user gave.
  void connect(Duration after = {});
  // An attempt at that has failed: at the next place.  After all of them there is a pause of at
  // most `longest`.
  void try_next_place(Duration longest);

  // A node that is part of its run has lost its connection, and is to have another one.  `is_mute`:
  // it got no answer on it.
  void reconnect(bool is_mute);
  // An attempt at that has failed: at the next of several endpoints, or with a pause at the same
  // place.
  void reconnect_later();
  // It is sent to this one of several endpoints, and its workers go on.
  void go_to_endpoint(std::size_t number, Duration after = {});

  // Before it goes once more where it could not be connected; it grows with each time.
  Duration pause_before_going_back(std::uint64_t times) const;

 private:
  void attempt(Duration after = {}, std::uint64_t stand_in = 0);
  void try_next_known(Duration longest);
  void go_to_user_endpoint();
  void connect_again(Duration most, Duration longest);
  void connect_again_in_time();
  void try_next_endpoint();
  void set_endpoint(std::size_t number);
  Duration try_time() const;

  State& state_;
  std::vector<Action>& actions_;
  MonoTime now_;
  const Config& config_;
};

}  // namespace ddprun::rendezvous::member
