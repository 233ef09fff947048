// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/losses.h"

#include <algorithm>
#include <utility>

#include "rendezvous/decide/waiting_text.h"
#include "store/base/seconds.h"

namespace ddprun::rendezvous::coordinator {
namespace {

constexpr int kDeafBeats = 2;

}  // namespace

MonoTime Losses::due(const Node& node) const {
  MonoTime due = node.seen + (is_up(node) ? state_.policy.lease() : state_.policy.silence_limit());
  // Of a node without workers nobody knows whether there is more to it than a name.
  if (node.away_at && !is_up(node)) due = std::min(due, *node.away_at + kLongestAway);
  if (!node.has_spoken && !node.is_member) due = std::min(due, node.came_at + kLongestMute);
  return node.leaves_by ? std::min(due, *node.leaves_by) : due;
}

void Losses::suspect_silent_nodes() {
  state_.next_look = now_ + std::min(state_.policy.keep_alive_interval, kLongestMute);
  std::uint64_t mark = state_.marks + 1;
  for (auto& [id, node] : state_.nodes) {
    if (node.suspected_at_mark) continue;
    if (due(node) > now_) {
      state_.next_look = std::min(state_.next_look, due(node));
      continue;
    }
    node.suspected_at_mark = state_.marks = mark;
    out_.add(action::Suspect{id});
  }
  if (state_.marks == mark) out_.add(action::Mark{mark});
}

std::vector<std::string> Losses::judge_silent_nodes(std::uint64_t mark) {
  std::vector<std::string> silent;
  for (auto& [id, node] : state_.nodes) {
    if (!node.suspected_at_mark || *node.suspected_at_mark > mark) continue;
    if (due(node) <= now_) {
      silent.push_back(id);
      continue;
    }
    node.suspected_at_mark.reset();
    state_.next_look = std::min(state_.next_look, due(node));
    if (!node.delivery.is_given_up) out_.add(action::Acquit{id});
  }
  std::vector<Loss> losses;
  for (const std::string& id : silent) {
    const Node& node = state_.nodes.at(id);
    std::string why = node.join.host + " was lost (silent for " + seconds_text(now_ - node.seen) +
                      (node.away_at ? ", its connection broken)" : ")");
    bool is_grace_over = node.leaves_by && *node.leaves_by <= now_;
    if (is_up(node) && !is_grace_over) state_.contacts.judged_at = now_;
    if (is_grace_over) {
      why = node.join.host + " has not ended its workers within the grace that it announced";
    }
    out_.send(id, command::Dropped{why});
    losses.push_back(take_out(id, is_grace_over ? LossKind::Left : LossKind::Lost, why));
    losses.back().is_silent = true;
  }
  // All at once: no round is to begin with a node that is about to go as well.
  if (!losses.empty()) go_on_without(losses);
  return silent;
}

void Losses::note_heard(const std::string& id, Node& node, std::uint64_t heard) {
  Delivery& delivery = node.delivery;
  bool has_news = heard > std::exchange(delivery.heard, heard);
  bool is_behind = heard < delivery.sent && !has_news;
  delivery.beats_behind = is_behind ? delivery.beats_behind + 1 : 0;
  if (std::max(heard, delivery.sent) < delivery.told && !std::exchange(delivery.is_asked, true)) {
    state_.delivery_marks.next.push_back({.id = id, .connection = node.connection});
    ask_what_was_sent();
  }
  bool is_deaf = delivery.beats_behind >= state_.policy.keep_alive_max_attempt + kDeafBeats;
  if (!is_deaf || std::exchange(delivery.is_given_up, true)) return;
  out_.add(action::Suspect{id});
  const command::Info info{describe(node.join) +
                           " does not hear what it is told here, though its "
                           "heartbeats come, and is given up; the network between may drop large "
                           "packets (see its MTU)"};
  for (const auto& [other, member] : state_.nodes) {
    if (other != id) out_.send(other, info);
  }
}

void Losses::ask_what_was_sent() {
  DeliveryMarks& marks = state_.delivery_marks;
  if (marks.number || marks.next.empty()) return;
  marks.number = ++state_.marks;
  marks.asked = std::exchange(marks.next, {});
  for (DeliveryMarks::Asked& asked : marks.asked) {
    auto node = state_.nodes.find(asked.id);
    if (node != state_.nodes.end()) asked.told = node->second.delivery.told;
  }
  out_.add(action::Mark{*marks.number});
}

void Losses::note_sent(std::uint64_t mark) {
  DeliveryMarks& marks = state_.delivery_marks;
  if (!marks.number || mark < *marks.number) return;
  for (const DeliveryMarks::Asked& asked : marks.asked) {
    auto node = state_.nodes.find(asked.id);
    bool is_same = node != state_.nodes.end() && node->second.connection == asked.connection;
    if (!is_same) continue;
    node->second.delivery.sent = asked.told;
    node->second.delivery.is_asked = false;
  }
  marks.number.reset();
  marks.asked.clear();
  ask_what_was_sent();
}

void Losses::lose(const std::string& id, LossKind kind, const std::string& why, int signal,
                  MonoTime since, bool is_silent) {
  const Node& node = state_.nodes.at(id);
  out_.forget(id, node.connection);
  // Nobody renews its lease any more.
  if (node.suspected_at_mark || node.delivery.is_given_up) out_.add(action::Acquit{id});
  Loss loss = take_out(id, kind, why);
  loss.signal = signal;
  loss.since = since;
  loss.is_silent = is_silent;
  go_on_without({loss});
}

Losses::Loss Losses::take_out(const std::string& id, LossKind kind, const std::string& why) {
  auto node = state_.nodes.extract(id);
  state_.taken_out.insert(id);
  const Node& lost = node.mapped();
  if (id == state_.founder) found_anew();
  if (lost.join.node_rank) state_.holders.erase(*lost.join.node_rank);
  bool was_up = is_up(lost);
  if (was_up) --state_.up_count;
  if (was_up && state_.phase == Phase::Stopping && id != state_.restarts.failed_on)
    take_back_failure(lost);
  if (lost.is_member && lost.has_succeeded && state_.phase == Phase::Running)
    state_.has_lost_finished = true;
  bool had_store = has_only_store(lost);
  if (!lost.leaves_by) note_loss_of_host(lost);
  return {.kind = kind,
          .why = had_store ? why + "; it had the store of the workers" : why,
          .was_up = was_up && !lost.leaves_by,
          .was_member = lost.is_member,
          .had_store = had_store && state_.up_count > 0};
}

// One that is gone before the first round decides nothing: there may have been no more to it than a
// name.
void Losses::found_anew() {
  bool had_any = state_.had_round || state_.has_formed || state_.former.awaited;
  if (state_.phase != Phase::Gathering || had_any || state_.nodes.empty()) return;
  auto first = std::ranges::min_element(state_.nodes, {},
                                        [](const auto& node) { return node.second.arrival; });
  state_.founder = first->first;
  if (first->second.join.policy == state_.policy) return;
  state_.policy = first->second.join.policy;
  state_.next_look = now_;
  for (auto& [id, node] : state_.nodes) {
    node.seen = now_;  // until now it went by another limit
    out_.send(id, keep_alive_of(state_.policy,
                                "the first node is gone, and the run goes by the settings of the "
                                "next one: " +
                                    policy_text(state_.policy)));
  }
}

void Losses::go_on_without(const std::vector<Loss>& losses) {
  for (const Loss& loss : losses) note_shortage(loss);
  auto worst =
      std::ranges::find_if(losses, [](const Loss& loss) { return loss.was_up || loss.had_store; });
  switch (state_.phase) {
    case Phase::Gathering:
      rounds_.form_soon();
      break;
    case Phase::Stopping:
      rounds_.form_if_due();
      break;
    case Phase::Running:
      // A node that has succeeded may go: nothing of the round depends on it any more.
      if (worst != losses.end()) {
        rounds_.stop({.cause = RoundEndCause::NodeLost,
                      .loss = worst->kind,
                      .why = worst->why,
                      .signal = worst->signal},
                     worst->is_silent);
      } else {
        rounds_.end_if_all_succeeded();
      }
      break;
    case Phase::Ended:
      break;
  }
}

void Losses::note_shortage(const Loss& loss) {
  if (!loss.was_member) return;
  if (!state_.shortage) state_.shortage = Shortage{.why = loss.why, .settled_at = now_};
  MonoTime& settled_at = state_.shortage->settled_at;
  if (loss.signal != 0) settled_at = std::max(settled_at, loss.since + kStopSpread);
}

// A failure on one node that followed from the silence of another one costs no restart.
void Losses::take_back_failure(const Node& lost) {
  if (!state_.restarts.failed_at || lost.leaves_by) return;
  if (!may_be_lost(lost, state_.policy, *state_.restarts.failed_at)) return;
  state_.restarts.take_back();
  ++state_.lost_rounds;
}

// A node for which a round was stopped has cost the others one, also if it is gone before the next.
void Losses::note_loss_of_host(const Node& lost) {
  bool was_round_stopped_for_it =
      state_.last_stop && state_.last_stop->cause == RoundEndCause::NodeJoined;
  if (!lost.is_member && !was_round_stopped_for_it) return;
  bool has_twin = std::ranges::any_of(
      state_.nodes, [&](const auto& node) { return node.second.join.host == lost.join.host; });
  if (has_twin) return;  // several nodes of one machine
  state_.churn.note_loss(lost.join.host, state_.policy.flap_limit, now_);
}

}  // namespace ddprun::rendezvous::coordinator
