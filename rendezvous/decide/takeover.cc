// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/takeover.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/decide/history.h"
#include "rendezvous/decide/host_change.h"
#include "rendezvous/decide/node_id.h"
#include "store/base/count.h"

namespace ddprun::rendezvous::coordinator {
namespace {

// "node1 was lost (it did not come back to the rendezvous)", as of a node that was lost here.
std::string not_back_text(int lost, const std::vector<std::string>& names) {
  constexpr std::size_t kMostNames = 4;
  const std::string where = " did not come back to the rendezvous";
  if (names.empty()) return count_of(lost, "node") + " of the round" + where;
  if (names.size() == 1) return host_of(names.front()) + " was lost (it" + where + ")";
  std::string text;
  const std::size_t shown = std::min(names.size(), kMostNames);
  for (std::size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : "") + host_of(names[i]);
  if (shown < names.size()) text += " and " + std::to_string(names.size() - shown) + " more";
  return text + " were lost (they" + where + ")";
}

}  // namespace

void Takeover::node_resumed(const std::string& id, const request::Resume& resume,
                            std::uint64_t connection) {
  if (may_move(state_)) note_contact_elsewhere(state_, resume.join, now_);
  // It may have overtaken its own join, on the connection before.
  bool is_new_here = resume.workers == Workers::Down && !state_.taken_out.contains(id);
  if (state_.phase == Phase::Ended || is_new_here) {
    return admission_.node_joined(id, resume.join, connection);
  }
  if (can_adopt(resume)) return adopt(id, resume, connection);
  out_.send_on(id, connection, command::Dropped{"its lease was over"});
}

bool Takeover::can_adopt(const request::Resume& resume) const {
  bool may_move = !resume.join.settings.endpoints.empty();
  if (state_.has_formed || (may_change_host(state_) && !may_move)) return false;
  if (auto rank = resume.join.node_rank) {
    auto holder = state_.holders.find(*rank);
    if (holder != state_.holders.end() && state_.nodes.at(holder->second).is_member) return false;
  }
  if (resume.join.next_round == 0 || resume.workers == Workers::Down) return false;
  if (!state_.nodes.empty() && resume.join.settings != state_.settings) return false;
  std::uint64_t round = resume.join.next_round - 1;
  if (state_.former.is_past(resume.join.run_uuid, round)) return false;
  if (state_.phase == Phase::Gathering) {
    // Others of that round have ended their workers.
    if (may_move && state_.former.is_broken && state_.former.awaits(round)) return false;
    return round + 1 >= state_.next_round && !state_.former.awaits_later_than(round);
  }
  if (state_.moving.adopted && *state_.moving.adopted != known_round(resume.join)) return false;
  return state_.former.awaits(round) && state_.phase != Phase::Ended;
}

// A node goes on with its round after its coordinator was started anew: the round is as it was.
void Takeover::adopt(const std::string& id, const request::Resume& resume,
                     std::uint64_t connection) {
  const request::Join& join = resume.join;
  found_if_first(state_, id, join, now_);
  bool is_first = state_.phase == Phase::Gathering;
  learn_rounds(state_, join);
  if (may_move(state_)) note_contact_elsewhere(state_, join, now_);
  expect_others(state_, id, join, true, now_);
  Node& node = state_.nodes[id];
  node = {.join = join,
          .arrival = state_.arrivals++,
          .connection = connection,
          .seen = now_,
          .came_at = now_,
          .is_member = true,
          .is_down = false,
          .last_rank = join.previous_rank,
          .knows = known_round(join)};
  if (join.node_rank) {
    admission_.clear_rank(*join.node_rank, join);
    state_.holders[*join.node_rank] = id;
  }
  ++state_.up_count;
  if (join.policy.lease() > state_.policy.lease()) take_lease(state_.policy, join.policy);
  if (is_first) {
    state_.phase = Phase::Running;
    state_.round = join.next_round - 1;
    state_.round_began = now_;
    state_.last_call.reset();
    state_.were_all_former = false;
    if (may_move(state_)) state_.moving.adopted = known_round(join);
    state_.moving.adopted_at = now_;
  }
  if (!state_.former.awaited) {
    rounds_.keep_run_file();
    // Whether there is room for those that came before the last of its nodes is known now.
    if (state_.newcomers_due)
      state_.newcomers_due = std::min(*state_.newcomers_due, now_ + kSettleTime);
  }
  if (state_.moving.adopted && is_alone_now()) {
    state_.contacts.unanswered.push_back({.id = id, .connection = connection, .resume = resume});
    return;
  }
  out_.send(id, command::Continue{});
  if (is_broken(state_) || is_adopted_broken(state_)) {
    rounds_.stop(stop_of_broken(state_));
  }
  requests_.reconcile_adopted(id, node, resume);
}

// Until more than half of the round's nodes are here, others may go on with it elsewhere.
bool Takeover::is_alone_now() {
  look_at_contacts(state_, now_);
  return is_alone(state_, now_);
}

void Takeover::node_left(const std::string& id, const request::Left& left) {
  if (!is_of_another_start(state_, id, left)) note_gone(state_, id, left, now_);
  const bool was_broken = state_.former.is_broken;
  account_for_left(state_, id, left);
  const std::string why = host_of(name_of(id)) + " " + (left.why.empty() ? "has left" : left.why);
  FormerRounds& former = state_.former;
  if (former.is_broken && !was_broken) {
    former.broken_why = why;
    former.broken_loss = loss_of(left);
  }
  if (is_broken(state_) && !is_alone(state_, now_)) {
    bool is_known = !former.broken_why.empty();
    rounds_.stop({.cause = RoundEndCause::NodeLost,
                  .loss = is_known ? former.broken_loss : loss_of(left),
                  .why = is_known ? former.broken_why : why});
  }
  rounds_.form_soon();
  admission_.lose_earlier_incarnations(id);
}

void Takeover::give_up_if_due() {
  if (!state_.former.awaited || now_ < state_.former.awaited->until) return;
  if (put_off_former_end(state_, now_)) return;
  // All nodes of the round are here, and only others have come since then.
  bool is_of_no_round = !state_.former.awaited->round;
  const std::vector<std::string> names = missing_names(*state_.former.awaited);
  const MonoTime counted = state_.former.awaited->counted;
  int lost = state_.former.settle();
  if (!may_move(state_)) forget_contacts(state_, counted);
  state_.contacts.judged_at = now_;
  if (is_taken_over(state_)) {
    if (is_of_no_round) return rounds_.end_if_all_succeeded();
    return rounds_.stop({.cause = RoundEndCause::NodeLost,
                         .loss = LossKind::Lost,
                         .why = not_back_text(lost, names)});
  }
  rounds_.form_if_due();
}

}  // namespace ddprun::rendezvous::coordinator
