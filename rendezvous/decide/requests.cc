// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/requests.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rendezvous/decide/host_change.h"
#include "rendezvous/decide/waiting_text.h"
#include "store/base/seconds.h"

namespace ddprun::rendezvous::coordinator {

// Of the silence limit.
constexpr int kLookSoonParts = 250;

void Requests::handle(const std::string& id, Node& node, const Request& request) {
  std::visit([&](const auto& each) { heard(id, node, each); }, request);
}

void Requests::note_round_of(const std::string& id, Node& node, std::uint64_t round) {
  if (!note_round(state_, id, node, round)) return;
  command::Settled settled{state_.quorum.bodies.back().id};
  for (auto& [other, member] : state_.nodes) {
    if (!member.is_member || !member.round || member.round->id() != settled.round) continue;
    member.round->after.clear();
    out_.send(other, settled);
  }
}

void Requests::heard(const std::string& id, Node& node, const request::Heartbeat& heartbeat) {
  node.contact = std::max(node.contact, published_at(heartbeat.pulse, now_));
  if (heartbeat.round) note_round_of(id, node, *heartbeat.round);
  if (heartbeat.died) node.join.died = *heartbeat.died;
  bool was_alone = is_alone(state_, now_);
  if (state_.moving.adopted && was_alone) {
    look_at_contacts(state_, now_);
    if (!is_alone(state_, now_)) answer_those_who_asked();
  }
  // Enough of the nodes may have been heard now; of many, others come in the same moment.
  if (was_alone) {
    MonoTime soon = now_ + state_.policy.silence_limit() / kLookSoonParts;
    state_.contacts.next_look = std::min(state_.contacts.next_look, soon);
  }
  admission_.refuse_contenders_of(id);
  // Enough of the nodes may have been heard now.  Of many, one more heartbeat comes soon.
  bool counts = state_.phase == Phase::Gathering && goes_on_from_a_round(state_);
  if (counts && rounds_.may_try()) rounds_.form_if_due();
}

void Requests::heard(const std::string& id, Node& node, const request::Ready& ready) {
  note_round_of(id, node, ready.round);
  workers_ended(node, ready.round, ready.store_port);
}

void Requests::workers_ended(Node& node, std::uint64_t round, std::uint16_t store_port) {
  if (!node.is_member || node.is_down || round != state_.round) return;
  // Who has not been told to stop here was told so at another endpoint.
  if (state_.phase == Phase::Running) {
    rounds_.stop({.cause = RoundEndCause::NodeLost,
                  .why = node.join.host + " was told elsewhere to stop its workers"});
  }
  node.join.store_port = store_port;
  bool was_up = !node.has_succeeded;
  node.is_down = true;
  if (was_up) --state_.up_count;
  if (state_.phase == Phase::Stopping) rounds_.form_if_due();
}

void Requests::heard(const std::string& id, Node& node, const request::Failed& failed) {
  bool is_news = state_.phase == Phase::Running && node.is_member && !node.has_succeeded &&
                 failed.round == state_.round && !state_.inspection;
  if (!is_news) return;  // a victim of what the round is being stopped for
  if (failed.wait) return inspect(id, node, failed, false);
  fail(id, node, failed);
}

// All nodes look at the same time.  The one that failed has begun already, but for a second look.
void Requests::inspect(const std::string& id, const Node& node, const request::Failed& failed,
                       bool is_again) {
  Inspection inspection{.id = id, .failed = failed, .until = now_ + kInspectionLimit};
  Failure failure = failed.failure;
  failure.node = node.join.host;
  command::Inspect inspect{.round = state_.round,
                           .in = failed.wait->in,
                           .is_idle = failed.wait->is_idle,
                           .has_lost_peer = failed.wait->has_lost_peer,
                           .why = describe_briefly(failure)};
  for (const auto& [other, member] : state_.nodes) {
    if (!member.is_member || !is_up(member) || member.leaves_by) continue;
    inspection.awaited.insert(other);
    if (other != id || is_again) out_.send(other, inspect);
  }
  state_.inspection = std::move(inspection);
}

void Requests::heard(const std::string& id, Node& node, const request::Found& found) {
  if (!state_.inspection || found.round != state_.round) return;
  if (state_.inspection->awaited.erase(id) == 0) return;
  state_.inspection->inquiry.add(node.join.host, found.findings);
  if (state_.inspection->awaited.empty()) conclude();
}

void Requests::conclude_if_due() {
  if (state_.inspection && now_ >= state_.inspection->until) conclude();
}

void Requests::conclude() {
  Inspection inspection = *std::exchange(state_.inspection, std::nullopt);
  auto node = state_.nodes.find(inspection.id);
  if (node == state_.nodes.end()) return;  // its loss has stopped the round
  TimedOutWait& wait = *inspection.failed.wait;
  auto has_waited = [own = inspection.failed.failure.rank](const Inquiry::OfNode& worker) {
    return worker.finding.place == Whereabouts::Waits && worker.finding.rank != own;
  };
  bool has_timed_out = std::ranges::any_of(inspection.inquiry.workers, has_waited);
  if (wait.has_lost_peer && has_timed_out) {  // a peer's own wait was over: for whom?
    wait = {.in = wait.in, .is_idle = true};
    return inspect(inspection.id, node->second, inspection.failed, true);
  }
  name_suspects(inspection.failed.failure, wait, inspection.inquiry);
  fail(inspection.id, node->second, inspection.failed);
}

std::vector<RankRange> Requests::ended_nodes() const {
  std::vector<RankRange> ended;
  for (const auto& [id, node] : state_.nodes) {
    if (!node.is_member || !node.has_succeeded || !node.round) continue;
    ended.push_back(
        {.first = node.round->ranks.base_rank, .count = node.join.participant.local_world_size});
    if (ended.size() == kMaxEndedNodes) break;
  }
  return ended;
}

void Requests::fail(const std::string& id, const Node& node, const request::Failed& failed) {
  Failure failure = failed.failure;
  failure.node = node.join.host;
  failure.ended_before = ended_nodes();
  failure.restart_count = state_.restarts.count;
  state_.restarts.record(failure);
  if (failed.is_final) return rounds_.end({.exit_code = exit_code_of(failed.failure)});
  if (state_.restarts.count >= state_.policy.max_restarts) {
    bool had_any = state_.policy.max_restarts > 0;
    command::End verdict{.exit_code =
                             had_any ? command::kExitBudgetSpent : exit_code_of(failed.failure)};
    const Node* suspect = suspected_member(id);
    return suspect == nullptr ? rounds_.end(std::move(verdict))
                              : end_if_not_lost(*suspect, id, verdict);
  }
  state_.restarts.spend(id, now_);
  forget_output(failure);  // every node reads it once, at the end
  rounds_.stop({.cause = RoundEndCause::WorkerFailed, .failure = std::move(failure)});
}

void Requests::heard(const std::string&, Node& node, const request::Succeeded& succeeded) {
  bool is_news = state_.phase == Phase::Running && node.is_member && !node.has_succeeded &&
                 succeeded.round == state_.round;
  if (!is_news) return;
  node.has_succeeded = true;
  --state_.up_count;
  rounds_.end_if_all_succeeded();
}

// Its workers have the grace that it says, and then it says Left.  The others are stopped at
// once.
void Requests::heard(const std::string& id, Node& node, const request::Leaving& leaving) {
  if (node.leaves_by) return;
  std::string why = node.join.host + " " + (leaving.why.empty() ? "leaves" : leaving.why);
  if (!is_up(node)) return admission_.lose(id, LossKind::Left, why, leaving.signal);
  node.leaves_by = now_ + leaving.grace + kLeaveMargin;
  node.leaves_why = why;
  node.leaves_signal = leaving.signal;
  node.leaves_since = now_;
  state_.next_look = std::min(state_.next_look, *node.leaves_by);
  if (state_.phase == Phase::Running) {
    rounds_.stop({.cause = RoundEndCause::NodeLost,
                  .loss = LossKind::Left,
                  .why = why,
                  .signal = leaving.signal});
  }
}
void Requests::heard(const std::string& id, Node& node, const request::Left& left) {
  note_gone(state_, id, left, now_);
  if (node.is_member) rounds_.note_left_in_run_file();
  if (node.leaves_by)
    return admission_.lose(id, LossKind::Left, node.leaves_why, node.leaves_signal,
                           node.leaves_since);
  admission_.lose(id, loss_of(left),
                  node.join.host + " " + (left.why.empty() ? "has left" : left.why));
}
// It may be back in a moment; if its agent is gone, the guardian says Left.
void Requests::heard(const std::string&, Node& node, const request::Lost&) {
  if (!node.away_at) node.away_at = now_;
  state_.next_look = std::min(state_.next_look, now_ + kLongestAway);
}
void Requests::heard(const std::string& id, Node& node, const request::Resume& resume) {
  if (state_.phase == Phase::Ended) return out_.send(id, state_.verdict);
  node.away_at.reset();
  if (may_move(state_)) {
    note_contact_elsewhere(state_, resume.join, now_);
    if (has_gone_on_elsewhere(node, resume.join)) {
      std::string why = node.join.host + " has gone on elsewhere";
      out_.send(id, command::Dropped{why});
      return admission_.lose(id, LossKind::CutOff, why);
    }
  }
  if (node.is_down) {
    bool is_back = std::exchange(node.join, resume.join).is_back;
    node.join.is_back = is_back;  // before it came here
  }
  node.join.died = resume.join.died;  // others may have died since
  if (resume.join.next_round > 0) note_round_of(id, node, resume.join.next_round - 1);
  if (is_alone(state_, now_)) {
    state_.contacts.unanswered.push_back(
        {.id = id, .connection = node.connection, .resume = resume});
    return;
  }
  answer(id, node, resume);
}

// It was at another endpoint, and heard of another round there.
bool Requests::has_gone_on_elsewhere(const Node& node, const request::Join& join) const {
  RoundId knows = known_round(join);
  bool is_known = knows == node.knows || (node.round && knows == node.round->id());
  return !knows.by.empty() && !is_known;
}

// Its workers may live.
void Requests::answer(const std::string& id, Node& node, const request::Resume& resume) {
  out_.send(id, command::Continue{});
  // It may have missed that its round is settled.
  bool is_settled = !resume.join.after.empty() && node.round && node.round->after.empty() &&
                    node.knows == node.round->id();
  if (is_settled) out_.send(id, command::Settled{node.knows});
  // It may have missed that, and the lease of its next workers depends on it.
  if (!has_same_lease(resume.join.policy, state_.policy))
    out_.send(id, keep_alive_of(state_.policy, lease_text(state_)));
  if (state_.moving.adopted) {
    reconcile_adopted(id, node, resume);
  } else {
    reconcile(id, node, resume);
  }
  rounds_.form_if_due();
}

void Requests::answer_those_who_asked() {
  std::deque<Unanswered>& unanswered = state_.contacts.unanswered;
  if (is_adopted_broken(state_)) {
    rounds_.stop(stop_of_broken(state_));
  }
  while (!unanswered.empty()) {  // a round that is formed meanwhile answers all others
    Unanswered asks = std::move(unanswered.front());
    unanswered.pop_front();
    auto node = state_.nodes.find(asks.id);
    if (node != state_.nodes.end() && node->second.connection == asks.connection)
      answer(asks.id, node->second, asks.resume);
  }
}

void Requests::reconcile(const std::string& id, Node& node, const request::Resume& resume) {
  if (!node.is_member) return;
  if (node.round && resume.join.next_round <= node.round->number) {
    // It has not heard of its round, and so helps to settle nothing.
    if (state_.phase == Phase::Running) return out_.send(id, *node.round);
    return workers_ended(node, node.round->number, resume.join.store_port);
  }
  std::uint64_t round = resume.join.next_round - 1;
  switch (resume.workers) {
    case Workers::Down:
      return heard(id, node, request::Ready{round, resume.join.store_port});
    case Workers::Succeeded:
      heard(id, node, request::Succeeded{round});
      break;
    case Workers::Up:
    case Workers::Stopping:
      if (resume.failed) heard(id, node, *resume.failed);
      // Its own word of that may come later than the end of its workers.
      if (resume.leaving && is_up(node)) heard(id, node, *resume.leaving);
      break;
  }
  if (state_.phase == Phase::Stopping && state_.last_stop) out_.send(id, *state_.last_stop);
}

void Requests::reconcile_adopted(const std::string& id, Node& node, const request::Resume& resume) {
  // The coordinator before has counted a failure whose restart count is that of an attempt
  // before.
  bool is_counted = resume.failed && resume.failed->failure.restart_count < state_.restarts.count;
  request::Resume news = resume;
  if (is_counted) {
    Failure failure = news.failed->failure;
    failure.node = node.join.host;
    if (news.why.empty()) news.why = describe_briefly(failure);
    news.failed.reset();
  }
  reconcile(id, node, news);
  bool is_stopping = news.workers == Workers::Stopping && !news.failed;
  if (is_stopping && state_.phase == Phase::Running) {
    rounds_.stop({.cause = RoundEndCause::NodeLost,
                  .loss = news.loss,
                  .why = news.why.empty()
                             ? node.join.host + " was stopping its workers when the rendezvous "
                                                "began anew"
                             : news.why});
  }
}

// One that may be lost, and that the others need: its connection is broken, or it is silent for
// longer than between two heartbeats.  Not the one that has just said that a worker failed.
const Node* Requests::suspected_member(const std::string& failed_on) const {
  auto suspect = std::ranges::find_if(state_.nodes, [&](const auto& node) {
    bool is_needed = is_up(node.second) || has_only_store(node.second);
    return node.first != failed_on && is_needed && may_be_lost(node.second, state_.policy, now_);
  });
  return suspect == state_.nodes.end() ? nullptr : &suspect->second;
}

// The workers of a lost node's peers fail before it is known that the node is lost.
void Requests::end_if_not_lost(const Node& suspect, const std::string& failed_on,
                               command::End verdict) {
  state_.restarts.end_unless_lost(failed_on, now_, std::move(verdict));
  std::string store = has_only_store(suspect) ? ", which has the store of the workers," : "";
  std::string why =
      suspect.away_at
          ? "the connection of " + suspect.join.host + store + " is broken"
          : suspect.join.host + store + " has been silent for " + seconds_text(now_ - suspect.seen);
  rounds_.stop({.cause = RoundEndCause::NodeLost,
                .loss = LossKind::Lost,
                .why = why + ", and a worker failed on " + state_.restarts.failures.back().node});
}

}  // namespace ddprun::rendezvous::coordinator
