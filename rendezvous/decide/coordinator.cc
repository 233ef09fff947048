// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/coordinator.h"

#include <algorithm>
#include <utility>

#include "rendezvous/decide/waiting_text.h"
#include "store/base/text.h"
#include "store/base/variant.h"

namespace ddprun::rendezvous::coordinator {
namespace {

// People are told what is waited for after so long, and again when it changes or so much later.
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr Duration kRepeat = std::chrono::seconds(30);

// The words of so many failures are kept in full; an End must fit into a message.
constexpr std::size_t kMaxFailures = 32;
constexpr std::size_t kMaxOldMessage = 200;

std::string describe(const request::Join& join) {
  return join.host + " (pid " + std::to_string(join.pid) + ")";
}

// One step: the state being changed and the actions being collected.
class CoordinatorTransition {
 public:
  CoordinatorTransition(State state, Now now) : state_(std::move(state)), now_(now.mono) {
    forgive_own_silence();
  }

  Step result() && {
    if (is_over(state_) && !state_.next_run.empty()) begin_anew();
    return {std::move(state_), std::move(actions_)};
  }

  void operator()(const event::Arrived& event) {
    auto node = state_.nodes.find(event.node);
    if (const auto* join = std::get_if<request::Join>(&event.request)) {
      if (node == state_.nodes.end()) joined(event.node, *join);
      return;
    }
    if (const auto* foreign = std::get_if<request::Foreign>(&event.request)) {
      send(event.node, command::Refuse{"it speaks version " + std::to_string(foreign->version) +
                                       " of the rendezvous protocol, and the run version " +
                                       std::to_string(kProtocolVersion)});
      return;
    }
    if (node == state_.nodes.end()) return outsider_spoke(event.node, event.request);
    node->second.seen = now_;
    std::visit([&](const auto& request) { heard(node->first, node->second, request); },
               event.request);
  }

  void operator()(const event::Tick&) {
    if (now_ >= state_.next_look) look_for_the_silent();
    if (state_.phase == Phase::Gathering && !state_.nodes.empty()) {
      form_if_due();
      if (state_.phase == Phase::Gathering &&
          state_.nodes.size() < static_cast<std::size_t>(state_.settings.min_nodes) &&
          now_ >= state_.gathering_since + state_.policy.join_timeout) {
        announce_shortage();
        return end({.exit_code = command::kExitRendezvous, .why = too_few_text(state_)});
      }
    }
    report_waiting();
  }

  void operator()(const event::HostLeaves& event) {
    for (auto& [id, join] : std::exchange(state_.next_run, {})) {
      send(id, command::Refuse{event.why});
    }
    if (state_.phase == Phase::Ended) return;
    end({.exit_code = command::kExitRendezvous, .why = event.why, .signal = event.signal});
  }

 private:
  void send(const std::string& node, Command command) {
    actions_.push_back(action::Send{node, std::move(command)});
  }

  // Should this process have been stopped for a while, nobody else was silent meanwhile.
  void forgive_own_silence() {
    Duration slept = now_ - state_.last_turn;
    if (!state_.nodes.empty() && slept > 2 * state_.policy.keep_alive_interval) {
      for (auto& [id, node] : state_.nodes) node.seen += slept;
    }
    state_.last_turn = now_;
  }

  // Joining (a node comes, or comes back).

  void joined(const std::string& id, const request::Join& join) {
    if (state_.phase == Phase::Ended) {
      // Who was in a round of this run has only been away.
      if (join.next_round > 0) return send(id, state_.verdict);
      if (state_.next_run.size() < kMaxStandbys) state_.next_run.emplace_back(id, join);
      return;
    }
    if (state_.nodes.empty()) found(id, join);
    if (!join.preflight_failure.empty() && state_.had_round) {
      return send(id, command::Refuse{preflight_text(join)});
    }
    if (join.settings != state_.settings) return refuse_difference(id, join);
    if (join.node_rank) {
      if (*join.node_rank >= state_.settings.max_nodes) {
        return send(id, command::Refuse{
                            "--node-rank=" + std::to_string(*join.node_rank) + ": with at most " +
                            std::to_string(state_.settings.max_nodes) + " nodes it is 0.." +
                            std::to_string(state_.settings.max_nodes - 1)});
      }
      if (auto holder = state_.holders.find(*join.node_rank); holder != state_.holders.end()) {
        if (state_.contenders.size() < kMaxStandbys)
          state_.contenders[id] = {.rival = holder->second, .join = join};
        return;
      }
    }
    admit(id, join);
  }

  void found(const std::string& id, const request::Join& join) {
    state_.founder = id;
    state_.run_uuid = join.run_uuid.empty() ? id : join.run_uuid;
    state_.settings = join.settings;
    state_.policy = join.policy;
    state_.gathering_since = now_;
    state_.next_look = now_ + state_.policy.keep_alive_interval;
  }

  void refuse_difference(const std::string& id, const request::Join& join) {
    std::string difference = difference_text(join.settings, state_.settings);
    const auto founder = state_.nodes.find(state_.founder);
    const request::Join& first =
        founder != state_.nodes.end() ? founder->second.join : state_.nodes.begin()->second.join;
    send(id, command::Refuse{"it has " + difference + " as the other nodes of the run, begun by " +
                             describe(first) + ", have it"});
    if (founder != state_.nodes.end()) {
      send(state_.founder,
           command::Info{"refused " + describe(join) + ": it has " + difference + " here"});
    }
  }

  void admit(const std::string& id, const request::Join& join) {
    std::size_t most = static_cast<std::size_t>(state_.settings.max_nodes) + kMaxStandbys;
    if (state_.nodes.size() >= most) {
      return send(id, command::Refuse{"there are " + std::to_string(state_.nodes.size()) +
                                      " nodes already, standbys included"});
    }
    if (join.next_round > 0) {
      // It was in rounds of this run, maybe of a host that is gone.
      state_.restart_count = std::max(state_.restart_count, join.restart_count);
      state_.next_round = std::max(state_.next_round, join.next_round);
      if (!std::exchange(state_.had_round, true)) state_.run_uuid = join.run_uuid;
      if (state_.phase == Phase::Gathering && join.previous_nodes > 0) {
        state_.survivors = std::max(state_.survivors.value_or(0), join.previous_nodes - 1);
      }
    }
    if (join.node_rank) state_.holders[*join.node_rank] = id;
    state_.nodes[id] = {
        .join = join, .arrival = state_.arrivals++, .seen = now_, .last_rank = join.previous_rank};
    if (join.policy != state_.policy) {
      send(id, command::KeepAlive{.keep_alive_interval = state_.policy.keep_alive_interval,
                                  .keep_alive_max_attempt = state_.policy.keep_alive_max_attempt,
                                  .text = "the run goes by the settings of its first node: " +
                                          policy_text(state_.policy)});
    }
    switch (state_.phase) {
      case Phase::Gathering:
        return form_if_due();
      case Phase::Running:
        if (has_room() && !somebody_is_done()) {
          return stop({.cause = StopCause::NodeJoined, .why = join.host + " has joined"});
        }
        return stand_by(id, state_.nodes[id]);
      case Phase::Stopping:
        if (state_.nodes.size() > static_cast<std::size_t>(state_.settings.max_nodes))
          stand_by(id, state_.nodes[id]);
        return;
      case Phase::Ended:
        return;
    }
  }

  static std::string preflight_text(const request::Join& join) {
    return join.host + " cannot start its workers: " + join.preflight_failure;
  }

  void turn_away(std::map<std::string, Node>::node_type node) {
    const request::Join& join = node.mapped().join;
    if (join.node_rank) state_.holders.erase(*join.node_rank);
    send(node.key(), command::Refuse{preflight_text(join)});
    for (const auto& [id, other] : state_.nodes)
      send(id, command::Info{preflight_text(join) + "; the run goes on without it"});
  }

  void stand_by(const std::string& id, Node& node) {
    node.is_standby = true;
    std::string reason = has_room() ? "some of the nodes have finished already"
                                    : "there are " + std::to_string(state_.settings.max_nodes) +
                                          " nodes, as many as --nnodes allows";
    send(id, command::Standby{reason});
  }

  bool has_room() const {
    auto members =
        std::ranges::count_if(state_.nodes, [](const auto& node) { return node.second.is_member; });
    return members < state_.settings.max_nodes;
  }
  bool somebody_is_done() const {
    return std::ranges::any_of(state_.nodes,
                               [](const auto& node) { return node.second.has_succeeded; });
  }

  // Of two nodes with one --node-rank the first has it, unless it turns out to be gone.  Like one
  // that waits for the next run, a contender may be gone as well.
  void outsider_spoke(const std::string& id, const Request& request) {
    bool is_gone = std::holds_alternative<request::Lost>(request) ||
                   std::holds_alternative<request::Leave>(request);
    if (!is_gone) return;
    std::erase_if(state_.next_run, [&](const auto& comer) { return comer.first == id; });
    state_.contenders.erase(id);
    actions_.push_back(action::Forget{id});
  }
  void refuse_contenders_of(const std::string& rival) {
    for (auto it = state_.contenders.begin(); it != state_.contenders.end();) {
      if (it->second.rival != rival) {
        ++it;
        continue;
      }
      const request::Join& holder = state_.nodes[rival].join;
      std::string rank = std::to_string(*it->second.join.node_rank);
      send(it->first,
           command::Refuse{"--node-rank=" + rank + " is that of " + describe(holder) + " already"});
      send(rival, command::Info{"refused " + describe(it->second.join) + ": --node-rank=" + rank +
                                " is taken by this node"});
      it = state_.contenders.erase(it);
    }
  }
  void admit_contenders_of(const std::string& rival) {
    auto contenders = std::exchange(state_.contenders, {});
    for (auto& [id, contender] : contenders) {
      if (contender.rival != rival) {
        state_.contenders[id] = std::move(contender);
      } else {
        joined(id, contender.join);
      }
    }
  }

  // What nodes say.

  void heard(const std::string& id, Node&, const request::Heartbeat&) { refuse_contenders_of(id); }

  void heard(const std::string&, Node& node, const request::Ready& ready) {
    if (!node.is_member || node.is_down || ready.round != state_.round) return;
    node.join.store_port = ready.store_port;
    bool was_up = !node.has_succeeded;
    node.is_down = true;
    if (was_up) --state_.up_count;
    if (state_.phase == Phase::Stopping) form_if_due();
  }

  void heard(const std::string& id, Node& node, const request::Failed& failed) {
    bool is_news = state_.phase == Phase::Running && node.is_member && !node.has_succeeded &&
                   failed.round == state_.round;
    if (!is_news) return;  // a victim of what the round is being stopped for
    Failure failure = failed.failure;
    failure.node = node.join.host;
    failure.restart_count = state_.restart_count;
    record(failure);
    if (failed.is_final) return end({.exit_code = failed.exit_code});
    if (state_.restart_count >= state_.policy.max_restarts) {
      bool had_any = state_.policy.max_restarts > 0;
      return end({.exit_code = had_any ? command::kExitBudgetSpent : failed.exit_code});
    }
    ++state_.restart_count;
    state_.failed_at = now_;
    state_.failed_on = id;
    forget_output(failure);  // every node reads it once, at the end
    stop({.cause = StopCause::WorkerFailed, .failure = std::move(failure)});
  }

  void heard(const std::string&, Node& node, const request::Succeeded& succeeded) {
    bool is_news = state_.phase == Phase::Running && node.is_member && !node.has_succeeded &&
                   succeeded.round == state_.round;
    if (!is_news) return;
    node.has_succeeded = true;
    --state_.up_count;
    end_if_all_succeeded();
  }

  void heard(const std::string& id, Node& node, const request::Leave& leave) {
    lose(id, node.join.host + " " + (leave.why.empty() ? "has left" : leave.why), leave.signal);
  }
  void heard(const std::string& id, Node& node, const request::Lost&) {
    lose(id, node.join.host + " was lost (its agent, pid " + std::to_string(node.join.pid) +
                 ", is gone)");
  }
  void heard(const std::string&, Node&, const request::Join&) {}
  void heard(const std::string&, Node&, const request::Foreign&) {}

  // Losing nodes.

  void look_for_the_silent() {
    state_.next_look = now_ + state_.policy.keep_alive_interval;
    std::vector<std::string> silent;
    for (const auto& [id, node] : state_.nodes) {
      MonoTime due = node.seen + state_.policy.silence_limit();
      if (due <= now_) {
        silent.push_back(id);
      } else {
        state_.next_look = std::min(state_.next_look, due);
      }
    }
    std::vector<Loss> losses;
    for (const std::string& id : silent) {
      const Node& node = state_.nodes.at(id);
      std::string why =
          node.join.host + " was lost (silent for " + seconds_text(now_ - node.seen) + ")";
      send(id, command::Dropped{why});
      losses.push_back(take_out(id, why));
    }
    // All at once: no round is to begin with a node that is about to go as well.
    if (!losses.empty()) go_on_without(losses);
  }

  struct Loss {
    std::string id;
    std::string why;
    bool was_up = false;      // its workers ran
    bool was_member = false;  // of the last round
    int signal = 0;           // which stopped it
  };

  // Of a node that cannot hear any more.
  void lose(const std::string& id, const std::string& why, int signal = 0) {
    actions_.push_back(action::Forget{id});
    Loss loss = take_out(id, why);
    loss.signal = signal;
    go_on_without({loss});
  }

  Loss take_out(const std::string& id, const std::string& why) {
    auto node = state_.nodes.extract(id);
    const Node& lost = node.mapped();
    if (lost.join.node_rank) state_.holders.erase(*lost.join.node_rank);
    bool was_up = lost.is_member && !lost.is_down && !lost.has_succeeded;
    if (was_up) --state_.up_count;
    if (was_up && state_.phase == Phase::Stopping && id != state_.failed_on) blame_the_loss(lost);
    return {.id = node.key(), .why = why, .was_up = was_up, .was_member = lost.is_member};
  }

  void go_on_without(const std::vector<Loss>& losses) {
    for (const Loss& loss : losses) note_shortage(loss);
    auto worst = std::ranges::find_if(losses, [](const Loss& loss) { return loss.was_up; });
    switch (state_.phase) {
      case Phase::Gathering:
      case Phase::Stopping:
        form_if_due();
        break;
      case Phase::Running:
        // Whoever has succeeded may go: nothing of the round depends on it any more.
        if (worst != losses.end()) {
          stop({.cause = StopCause::NodeLost, .why = worst->why, .signal = worst->signal});
        } else {
          end_if_all_succeeded();
        }
        break;
      case Phase::Ended:
        break;
    }
    for (const Loss& loss : losses) admit_contenders_of(loss.id);
  }

  void note_shortage(const Loss& loss) {
    if (!loss.was_member) return;
    if (!state_.shortage) state_.shortage = Shortage{.why = loss.why, .settled_at = now_};
    if (loss.signal != 0) state_.shortage->settled_at = now_ + kStopSpread;
  }

  // To the nodes that were in the last round; who comes later has lost nobody.
  void announce_shortage() {
    if (!state_.shortage || std::exchange(state_.shortage->is_announced, true)) return;
    for (const auto& [id, node] : state_.nodes) {
      if (node.is_member) send(id, command::Waiting{state_.shortage->why});
    }
  }

  // A failure on one node that followed from the silence of another one costs no restart.
  void blame_the_loss(const Node& lost) {
    if (!state_.failed_at || lost.seen > *state_.failed_at) return;
    state_.failed_at.reset();
    state_.failures.pop_back();
    --state_.restart_count;
  }

  // Rounds.

  void stop(command::Stop stop) {
    state_.phase = Phase::Stopping;
    state_.gathering_since = now_;
    state_.last_told.clear();
    stop.round = state_.round;
    stop.restart_count = state_.restart_count;
    stop.max_restarts = state_.policy.max_restarts;
    for (auto& [id, node] : state_.nodes) {
      if (!node.is_member) continue;
      if (node.has_succeeded) ++state_.up_count;  // it has to come back for the next round
      node.has_succeeded = false;
      send(id, stop);
    }
    form_if_due();
  }

  void form_if_due() {
    if (state_.phase == Phase::Stopping) {
      if (state_.up_count > 0) return;
      state_.phase = Phase::Gathering;
      state_.gathering_since = now_;
      if (count() >= state_.settings.min_nodes) return form();
    }
    if (state_.phase != Phase::Gathering) return;
    if (count() < state_.settings.min_nodes) {
      state_.last_call.reset();
      if (state_.shortage && now_ >= state_.shortage->settled_at) announce_shortage();
    } else if (count() >= state_.settings.max_nodes ||
               (state_.survivors && count() >= *state_.survivors)) {
      form();
    } else if (!state_.last_call) {
      state_.last_call = now_ + (state_.had_round ? std::min(kShortLastCall, last_call_timeout())
                                                  : last_call_timeout());
      if (state_.last_call <= now_) form();
    } else if (now_ >= *state_.last_call) {
      form();
    }
  }

  int count() const { return static_cast<int>(state_.nodes.size()); }
  Duration last_call_timeout() const { return state_.policy.last_call_timeout; }

  void form() {
    if (!exclude_failed_nodes()) return;
    std::vector<std::pair<const std::string*, Node*>> chosen = choose();
    std::vector<Claim> claims;
    claims.reserve(chosen.size());
    for (auto& [id, node] : chosen) {
      claims.push_back({.wanted = node->join.node_rank,
                        .previous = node->last_rank,
                        .host = node->join.host,
                        .arrival = node->arrival});
    }
    std::vector<std::size_t> seats = seat(claims);
    std::vector<Participant> participants;
    participants.reserve(seats.size());
    for (std::size_t i : seats) participants.push_back(chosen[i].second->join.participant);
    std::vector<Assignment> ranks = assign_ranks(participants);

    const request::Join& first = chosen[seats.front()].second->join;
    state_.round = state_.next_round++;
    command::Round round{.number = state_.round,
                         .run_uuid = state_.run_uuid,
                         .restart_count = state_.restart_count,
                         .max_restarts = state_.policy.max_restarts,
                         .master = state_.settings.master.value_or(
                             Endpoint{.host = first.address, .port = first.store_port})};
    state_.phase = Phase::Running;
    state_.had_round = true;
    state_.survivors.reset();
    state_.shortage.reset();
    state_.last_call.reset();
    state_.failed_at.reset();
    state_.last_told.clear();
    state_.up_count = seats.size();
    for (std::size_t rank = 0; rank < seats.size(); ++rank) {
      auto& [id, node] = chosen[seats[rank]];
      node->is_member = true;
      node->is_down = false;
      node->is_standby = false;
      node->last_rank = static_cast<int>(rank);
      round.ranks = ranks[rank];
      send(*id, round);
    }
    for (auto& [id, node] : state_.nodes) {
      if (!node.is_member && !node.is_standby) stand_by(id, node);
    }
  }

  // Nodes that can start no worker are as if they had not come.  Where too few are left, nobody is
  // to wait for more: false, and the run is over.
  bool exclude_failed_nodes() {
    std::vector<std::string> failed;
    for (const auto& [id, node] : state_.nodes) {
      if (!node.join.preflight_failure.empty()) failed.push_back(id);
    }
    if (failed.empty()) return true;
    std::string why = preflight_text(state_.nodes.at(failed.front()).join);
    int able = count() - static_cast<int>(failed.size());
    if (able < state_.settings.min_nodes) {
      end({.exit_code = command::kExitPreflight, .why = why});
      return false;
    }
    for (const std::string& id : failed) turn_away(state_.nodes.extract(id));
    return true;
  }

  // At most max_nodes of those who are there: survivors of the last round first, then who came
  // first.  Nobody is a member when it returns.
  std::vector<std::pair<const std::string*, Node*>> choose() {
    std::vector<std::pair<const std::string*, Node*>> chosen;
    chosen.reserve(state_.nodes.size());
    for (auto& [id, node] : state_.nodes) chosen.emplace_back(&id, &node);
    std::ranges::sort(chosen, {}, [](const auto& entry) {
      return std::pair(!entry.second->is_member, entry.second->arrival);
    });
    auto most = static_cast<std::size_t>(state_.settings.max_nodes);
    for (auto& [id, node] : chosen) node->is_member = false;
    if (chosen.size() > most) chosen.resize(most);
    return chosen;
  }

  // The end.

  void end_if_all_succeeded() {
    if (state_.phase == Phase::Running && state_.up_count == 0) {
      if (std::ranges::any_of(state_.nodes,
                              [](const auto& node) { return node.second.has_succeeded; }))
        end({.exit_code = 0});
    }
  }

  void end(command::End end) {
    state_.phase = Phase::Ended;
    end.failures = state_.failures;
    end.restart_count = state_.restart_count;
    end.max_restarts = state_.policy.max_restarts;
    for (const auto& [id, node] : state_.nodes) send(id, end);
    if (state_.had_round) actions_.push_back(action::Over{state_.run_uuid, end});
    state_.verdict = std::move(end);
    for (auto& [id, contender] : std::exchange(state_.contenders, {})) {
      send(id, command::Refuse{"the run is over"});
    }
  }

  void record(const Failure& failure) {
    for (Failure& earlier : state_.failures) {
      earlier.message = std::string(beginning_of(earlier.message, kMaxOldMessage));
      forget_output(earlier);
    }
    if (state_.failures.size() >= kMaxFailures) {
      state_.failures.erase(state_.failures.begin() + kMaxFailures / 2);
    }
    state_.failures.push_back(failure);
  }

  void begin_anew() {
    auto comers = std::exchange(state_.next_run, {});
    state_ = State{.last_turn = now_};
    for (auto& [id, join] : comers) joined(id, join);
  }

  void report_waiting() {
    bool waits = state_.phase == Phase::Gathering || state_.phase == Phase::Stopping;
    if (!waits || now_ - state_.gathering_since < kPatience) return;
    std::string what = waiting_text(state_);
    std::string beside = beside_text(state_);
    if (what + beside == state_.last_told && now_ - state_.last_told_at < kRepeat) return;
    state_.last_told = what + beside;
    state_.last_told_at = now_;
    command::Info info{what + time_left_text(state_, now_) + beside};
    for (const auto& [id, node] : state_.nodes) {
      if (node.is_down) send(id, info);
    }
  }

  State state_;
  MonoTime now_;
  std::vector<Action> actions_;
};

}  // namespace

Step step(State state, const Event& event, Now now) {
  CoordinatorTransition transition(std::move(state), now);
  std::visit(transition, event);
  return std::move(transition).result();
}

std::optional<MonoTime> deadline(const State& state) {
  if (state.nodes.empty()) return std::nullopt;
  MonoTime due = state.next_look;
  if (state.phase != Phase::Gathering) return due;
  if (state.last_call) due = std::min(due, *state.last_call);
  bool is_short = state.nodes.size() < static_cast<std::size_t>(state.settings.min_nodes);
  if (is_short && state.shortage && !state.shortage->is_announced)
    due = std::min(due, state.shortage->settled_at);
  return due;
}

bool is_over(const State& state) {
  return state.nodes.empty() && state.contenders.empty();
}

}  // namespace ddprun::rendezvous::coordinator
