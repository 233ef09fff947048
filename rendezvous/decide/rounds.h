// SPDX-License-Identifier: BSD-3-Clause
//
// The rounds of a run: when one is stopped, when the next one is formed, and when there is none
// any more.
#pragma once

#include <string>

#include "rendezvous/decide/outgoing.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

std::string preflight_text(const request::Join& join);

// What it is given outlives it.
class Rounds {
 public:
  Rounds(State& state, Outgoing& out, MonoTime now) : state_(state), out_(out), now_(now) {}

  // Stops the workers of the present round, for another one to follow.  `is_silent`: it is lost
  // with a node of which nothing is heard.
  void stop(command::Stop stop, bool is_silent = false);
  void form_if_due();
  // The same, but not again and again where there are many nodes, or have been: a try takes the
  // longer the more there are.  While the run gathers the next Tick makes up for it.
  void form_soon();
  // Whether the last try of this kind is long enough ago; then this counts as one.
  bool may_try();
  void end_if_all_succeeded();
  void end(command::End end);

  // Ends a run for which too few nodes have come in time.  True: it has.
  bool end_if_too_few();

  // Stops the round for nodes that have come since, where it has room for them.
  void take_in_newcomers();
  // One has come.  It waits for others, and until the round has settled: kGatherTime, kSettleTime.
  void expect_newcomer(const std::string& id);
  void stand_by(const std::string& id, Node& node);
  // Where the run goes on without its host, to a node that is not in the round.
  void name_stand_ins_to(const std::string& id);

  // For the coordinator that follows, should this process be killed.
  void keep_run_file();
  // A node of the present round has left: the run file says so, too.
  void note_left_in_run_file();

 private:
  RunFile run_file() const;
  bool is_join_time_over() const;
  void note_age();
  void adapt_lease();
  bool can_more_come() const;
  int count() const { return static_cast<int>(state_.nodes.size()); }
  bool has_enough() const { return count() >= state_.settings.min_nodes; }
  bool may_form_now();
  bool may_go_on();
  bool are_all_former_back() const;
  void form();
  bool exclude_failed_nodes();
  void turn_away(std::map<std::string, Node>::node_type node);
  void announce_shortage();

  State& state_;
  Outgoing& out_;
  MonoTime now_;
};

}  // namespace ddprun::rendezvous::coordinator
