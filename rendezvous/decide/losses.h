// SPDX-License-Identifier: BSD-3-Clause
//
// Nodes that a run loses: silent ones, and those that say that they go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/outgoing.h"
#include "rendezvous/decide/rounds.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// What it is given outlives it.
class Losses {
 public:
  Losses(State& state, Outgoing& out, MonoTime now, Rounds& rounds)
      : state_(state), out_(out), now_(now), rounds_(rounds) {}

  // Drops nodes that were silent for too long, and returns their ids.
  std::vector<std::string> drop_silent_nodes();

  // Of a node that cannot hear any more.  A signal has stopped it at `since`, if it is not 0.
  void lose(const std::string& id, const std::string& why, int signal, MonoTime since);

 private:
  struct Loss {
    std::string why;
    bool was_up = false;      // its workers ran, and it was not known to leave
    bool was_member = false;  // of the last round
    bool had_store = false;   // of the workers of the round, which others still need
    int signal = 0;           // which stopped it
    MonoTime since{};         // when that came
  };

  Loss take_out(const std::string& id, const std::string& why);
  void go_on_without(const std::vector<Loss>& losses);
  void note_shortage(const Loss& loss);
  void take_back_failure(const Node& lost);
  void note_loss_of_host(const Node& lost);

  State& state_;
  Outgoing& out_;
  MonoTime now_;
  Rounds& rounds_;
};

}  // namespace ddprun::rendezvous::coordinator
