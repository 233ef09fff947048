// SPDX-License-Identifier: BSD-3-Clause
//
// What the nodes of a run say, and what follows from it.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/decide/admission.h"
#include "rendezvous/decide/outgoing.h"
#include "rendezvous/decide/rounds.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// What it is given outlives it.
class Requests {
 public:
  Requests(State& state, Outgoing& out, MonoTime now, Rounds& rounds, Admission& admission)
      : state_(state), out_(out), now_(now), rounds_(rounds), admission_(admission) {}

  void handle(const std::string& id, Node& node, const Request& request);

  // What a node that is back may have missed, and what it could not say.
  void reconcile(const std::string& id, Node& node, const request::Resume& resume);
  // The same, of a node whose round another coordinator has begun.
  void reconcile_adopted(const std::string& id, Node& node, const request::Resume& resume);

  // Enough nodes are heard again: those that asked meanwhile are answered.
  void answer_those_who_asked();

  // The nodes that have not said who did not come are waited for no longer.
  void conclude_if_due();

 private:
  // The node has heard of the round, and with that perhaps enough nodes have.
  void note_round_of(const std::string& id, Node& node, std::uint64_t round);
  void heard(const std::string& id, Node& node, const request::Heartbeat& heartbeat);
  void heard(const std::string& id, Node& node, const request::Ready& ready);
  // The node's workers of `round` are dead.
  void workers_ended(Node& node, std::uint64_t round, std::uint16_t store_port);
  void heard(const std::string& id, Node& node, const request::Failed& failed);
  void heard(const std::string& id, Node& node, const request::Found& found);
  void heard(const std::string& id, Node& node, const request::Succeeded& succeeded);
  void heard(const std::string& id, Node& node, const request::Leaving& leaving);
  void heard(const std::string& id, Node& node, const request::Left& left);
  void heard(const std::string& id, Node& node, const request::Lost&);
  void heard(const std::string& id, Node& node, const request::Resume& resume);
  void heard(const std::string&, Node&, const request::Join&) {}
  void heard(const std::string&, Node&, const request::Knock&) {}
  void heard(const std::string&, Node&, const request::Foreign&) {}
  bool has_gone_on_elsewhere(const Node& node, const request::Join& join) const;
  void answer(const std::string& id, Node& node, const request::Resume& resume);

  // What a failure costs.
  void fail(const std::string& id, const Node& node, const request::Failed& failed);
  std::vector<RankRange> ended_nodes() const;
  // First all nodes are asked who kept that worker waiting.
  void inspect(const std::string& id, const Node& node, const request::Failed& failed,
               bool is_again);
  void conclude();

  const Node* suspected_member(const std::string& failed_on) const;
  void end_if_not_lost(const Node& suspect, const std::string& failed_on, command::End verdict);

  State& state_;
  Outgoing& out_;
  MonoTime now_;
  Rounds& rounds_;
  Admission& admission_;
};

}  // namespace ddprun::rendezvous::coordinator
