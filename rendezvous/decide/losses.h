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

  // Nodes that were silent for too long are to be given up.  What they have said may lie in the
  // inbox unread; and a node that does not know yet may renew its lease.  So first the store says
  // that they are about to be given up, then a mark is put into the inbox, and when that is read
  // they are judged.  A lease that a node renews without seeing that the store says so was renewed
  // before the mark, and so was the heartbeat before it sent.
  void suspect_silent_nodes();

  // Of those that were suspected up to this mark, drops the ones that have been silent still, and
  // returns their ids.
  std::vector<std::string> judge_silent_nodes(std::uint64_t mark);

  // This heartbeat says how many commands have reached the node.  One that lives and hears nothing
  // would never stop its workers: after kDeafBeats beyond those of a silent node the store says
  // that it is given up, which it sees with its next heartbeat.  Its lease is waited for then.
  void note_heard(const std::string& id, Node& node, std::uint64_t heard);
  // What was sent before this mark lies ready for the nodes.
  void note_sent(std::uint64_t mark);

  // Of a node that cannot hear any more.  A signal has stopped it at `since`, if it is not 0.
  // `is_silent`: it was cut off.
  void lose(const std::string& id, LossKind kind, const std::string& why, int signal,
            MonoTime since, bool is_silent = false);

 private:
  // When it is to be given up, if nothing more is heard of it.
  MonoTime due(const Node& node) const;

  struct Loss {
    LossKind kind = LossKind::Lost;
    std::string why;
    bool was_up = false;      // its workers ran, and it was not known to leave
    bool was_member = false;  // of the last round
    bool had_store = false;   // of the workers of the round, which others still need
    bool is_silent = false;   // it is not known to have died
    int signal = 0;           // which stopped it
    MonoTime since{};         // when that came
  };

  void ask_what_was_sent();
  Loss take_out(const std::string& id, LossKind kind, const std::string& why);
  void found_anew();
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
