// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/coordinator.h"

#include <algorithm>
#include <utility>

#include "rendezvous/decide/waiting_text.h"
#include "store/base/variant.h"

namespace ddprun::rendezvous::coordinator {
namespace {

// People are told what is waited for after so long, and again when it changes or so much later.
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr Duration kRepeat = std::chrono::seconds(30);

// The words of so many failures are kept in full; an End must fit into a message.
constexpr std::size_t kMaxFailures = 32;
constexpr std::size_t kMaxOldMessage = 200;

std::string describe(const request::Join& hello) {
  return hello.host + " (pid " + std::to_string(hello.pid) + ")";
}

// One turn: the state being changed and the actions being collected.
class Turn {
 public:
  Turn(State state, Now now) : state_(std::move(state)), now_(now.mono) { forgive_own_silence(); }

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
      send(event.node, order::Refuse{"it speaks version " + std::to_string(foreign->version) +
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
        return end({.exit_code = order::kExitRendezvous, .why = too_few_text(state_)});
      }
    }
    tell_who_waits();
  }

  void operator()(const event::HostLeaves& event) {
    for (auto& [id, hello] : std::exchange(state_.next_run, {})) {
      send(id, order::Refuse{event.why});
    }
    if (state_.phase == Phase::Ended) return;
    end({.exit_code = order::kExitRendezvous, .why = event.why, .signal = event.signal});
  }

 private:
  void send(const std::string& node, Order order) {
    actions_.push_back(action::Send{node, std::move(order)});
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

  void joined(const std::string& id, const request::Join& hello) {
    if (state_.phase == Phase::Ended) {
      // Who was in a round of this run has only been away.
      if (hello.next_round > 0) return send(id, state_.verdict);
      if (state_.next_run.size() < kMaxStandbys) state_.next_run.emplace_back(id, hello);
      return;
    }
    if (state_.nodes.empty()) found(id, hello);
    if (!hello.unfit.empty() && state_.had_round) {
      return send(id, order::Refuse{unfit_text(hello)});
    }
    if (hello.settings != state_.settings) return refuse_difference(id, hello);
    if (hello.node_rank) {
      if (*hello.node_rank >= state_.settings.max_nodes) {
        return send(
            id, order::Refuse{"--node-rank=" + std::to_string(*hello.node_rank) +
                              ": with at most " + std::to_string(state_.settings.max_nodes) +
                              " nodes it is 0.." + std::to_string(state_.settings.max_nodes - 1)});
      }
      if (auto holder = state_.holders.find(*hello.node_rank); holder != state_.holders.end()) {
        if (state_.contenders.size() < kMaxStandbys)
          state_.contenders[id] = {.rival = holder->second, .hello = hello};
        return;
      }
    }
    admit(id, hello);
  }

  void found(const std::string& id, const request::Join& hello) {
    state_.founder = id;
    state_.incarnation = hello.incarnation.empty() ? id : hello.incarnation;
    state_.settings = hello.settings;
    state_.policy = hello.policy;
    state_.gathering_since = now_;
    state_.next_look = now_ + state_.policy.keep_alive_interval;
  }

  void refuse_difference(const std::string& id, const request::Join& hello) {
    std::string difference = difference_text(hello.settings, state_.settings);
    const auto founder = state_.nodes.find(state_.founder);
    const request::Join& first =
        founder != state_.nodes.end() ? founder->second.hello : state_.nodes.begin()->second.hello;
    send(id, order::Refuse{"it has " + difference + " as the other nodes of the run, begun by " +
                           describe(first) + ", have it"});
    if (founder != state_.nodes.end()) {
      send(state_.founder,
           order::Tell{"refused " + describe(hello) + ": it has " + difference + " here"});
    }
  }

  void admit(const std::string& id, const request::Join& hello) {
    std::size_t most = static_cast<std::size_t>(state_.settings.max_nodes) + kMaxStandbys;
    if (state_.nodes.size() >= most) {
      return send(id, order::Refuse{"there are " + std::to_string(state_.nodes.size()) +
                                    " nodes already, standbys included"});
    }
    if (hello.next_round > 0) {
      // It was in rounds of this run, maybe of a host that is gone.
      state_.restart_count = std::max(state_.restart_count, hello.restart_count);
      state_.next_round = std::max(state_.next_round, hello.next_round);
      if (!std::exchange(state_.had_round, true)) state_.incarnation = hello.incarnation;
      if (state_.phase == Phase::Gathering && hello.previous_nodes > 0) {
        state_.survivors = std::max(state_.survivors.value_or(0), hello.previous_nodes - 1);
      }
    }
    if (hello.node_rank) state_.holders[*hello.node_rank] = id;
    state_.nodes[id] = {.hello = hello,
                        .arrival = state_.arrivals++,
                        .seen = now_,
                        .last_rank = hello.previous_rank};
    if (hello.policy != state_.policy) {
      send(id, order::GoBy{.keep_alive_interval = state_.policy.keep_alive_interval,
                           .keep_alive_max_attempt = state_.policy.keep_alive_max_attempt,
                           .text = "the run goes by the settings of its first node: " +
                                   policy_text(state_.policy)});
    }
    switch (state_.phase) {
      case Phase::Gathering:
        return form_if_due();
      case Phase::Running:
        if (has_room() && !somebody_is_done()) {
          return stop({.cause = StopCause::NodeJoined, .why = hello.host + " has joined"});
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

  static std::string unfit_text(const request::Join& hello) {
    return hello.host + " cannot start its workers: " + hello.unfit;
  }

  void turn_away(std::map<std::string, Node>::node_type node) {
    const request::Join& hello = node.mapped().hello;
    if (hello.node_rank) state_.holders.erase(*hello.node_rank);
    send(node.key(), order::Refuse{unfit_text(hello)});
    for (const auto& [id, other] : state_.nodes)
      send(id, order::Tell{unfit_text(hello) + "; the run goes on without it"});
  }

  void stand_by(const std::string& id, Node& node) {
    node.is_standby = true;
    std::string reason = has_room() ? "some of the nodes have finished already"
                                    : "there are " + std::to_string(state_.settings.max_nodes) +
                                          " nodes, as many as --nnodes allows";
    send(id, order::Standby{reason});
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
      const request::Join& holder = state_.nodes[rival].hello;
      std::string rank = std::to_string(*it->second.hello.node_rank);
      send(it->first,
           order::Refuse{"--node-rank=" + rank + " is that of " + describe(holder) + " already"});
      send(rival, order::Tell{"refused " + describe(it->second.hello) + ": --node-rank=" + rank +
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
        joined(id, contender.hello);
      }
    }
  }

  // What nodes say.

  void heard(const std::string& id, Node&, const request::Beat&) { refuse_contenders_of(id); }

  void heard(const std::string&, Node& node, const request::Ready& ready) {
    if (!node.is_member || node.is_down || ready.round != state_.round) return;
    node.hello.store_port = ready.store_port;
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
    failure.host = node.hello.host;
    failure.attempt = state_.restart_count;
    record(failure);
    if (failed.is_final) return end({.exit_code = failed.exit_code});
    if (state_.restart_count >= state_.policy.max_restarts) {
      bool had_any = state_.policy.max_restarts > 0;
      return end({.exit_code = had_any ? order::kExitBudgetSpent : failed.exit_code});
    }
    ++state_.restart_count;
    state_.failed_at = now_;
    state_.failed_on = id;
    failure.words.clear();  // every node reads them once, at the end
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
    lose(id, node.hello.host + " " + (leave.why.empty() ? "has left" : leave.why), leave.signal);
  }
  void heard(const std::string& id, Node& node, const request::Lost&) {
    lose(id, node.hello.host + " was lost (its agent, pid " + std::to_string(node.hello.pid) +
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
          node.hello.host + " was lost (silent for " + seconds_text(now_ - node.seen) + ")";
      send(id, order::Dropped{why});
      losses.push_back(take_out(id, why));
    }
    // All at once: no round is to begin with a node that is about to go as well.
    if (!losses.empty()) go_on_without(losses);
  }

  struct Loss {
    std::string id;
    std::string why;
    bool was_up = false;  // its workers ran
    int signal = 0;       // which stopped it
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
    if (lost.hello.node_rank) state_.holders.erase(*lost.hello.node_rank);
    bool was_up = lost.is_member && !lost.is_down && !lost.has_succeeded;
    if (was_up) --state_.up_count;
    if (was_up && state_.phase == Phase::Stopping && id != state_.failed_on) blame_the_loss(lost);
    return {.id = node.key(), .why = why, .was_up = was_up};
  }

  void go_on_without(const std::vector<Loss>& losses) {
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

  // A failure on one node that followed from the silence of another one costs no restart.
  void blame_the_loss(const Node& lost) {
    if (!state_.failed_at || lost.seen > *state_.failed_at) return;
    state_.failed_at.reset();
    state_.failures.pop_back();
    --state_.restart_count;
  }

  // Rounds.

  void stop(order::Stop stop) {
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
    if (!part_with_the_unfit()) return;
    std::vector<std::pair<const std::string*, Node*>> chosen = choose();
    std::vector<Claim> claims;
    claims.reserve(chosen.size());
    for (auto& [id, node] : chosen) {
      claims.push_back({.wanted = node->hello.node_rank,
                        .previous = node->last_rank,
                        .host = node->hello.host,
                        .arrival = node->arrival});
    }
    std::vector<std::size_t> seats = seat(claims);
    std::vector<Participant> participants;
    participants.reserve(seats.size());
    for (std::size_t i : seats) participants.push_back(chosen[i].second->hello.participant);
    std::vector<Assignment> ranks = assign_ranks(participants);

    const request::Join& first = chosen[seats.front()].second->hello;
    state_.round = state_.next_round++;
    order::Round round{.number = state_.round,
                       .incarnation = state_.incarnation,
                       .restart_count = state_.restart_count,
                       .max_restarts = state_.policy.max_restarts,
                       .master = state_.settings.master.value_or(
                           Endpoint{.host = first.address, .port = first.store_port})};
    state_.phase = Phase::Running;
    state_.had_round = true;
    state_.survivors.reset();
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
  bool part_with_the_unfit() {
    std::vector<std::string> unfit;
    for (const auto& [id, node] : state_.nodes) {
      if (!node.hello.unfit.empty()) unfit.push_back(id);
    }
    if (unfit.empty()) return true;
    std::string why = unfit_text(state_.nodes.at(unfit.front()).hello);
    int fit = count() - static_cast<int>(unfit.size());
    if (fit < state_.settings.min_nodes) {
      end({.exit_code = order::kExitUnfit, .why = why});
      return false;
    }
    for (const std::string& id : unfit) turn_away(state_.nodes.extract(id));
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

  void end(order::End end) {
    state_.phase = Phase::Ended;
    end.failures = state_.failures;
    end.restart_count = state_.restart_count;
    end.max_restarts = state_.policy.max_restarts;
    for (const auto& [id, node] : state_.nodes) send(id, end);
    if (state_.had_round) actions_.push_back(action::Over{state_.incarnation, end});
    state_.verdict = std::move(end);
    for (auto& [id, contender] : std::exchange(state_.contenders, {})) {
      send(id, order::Refuse{"the run is over"});
    }
  }

  void record(const Failure& failure) {
    for (Failure& earlier : state_.failures) {
      if (earlier.message.size() > kMaxOldMessage) earlier.message.resize(kMaxOldMessage);
      earlier.words.clear();
    }
    if (state_.failures.size() >= kMaxFailures) {
      state_.failures.erase(state_.failures.begin() + kMaxFailures / 2);
    }
    state_.failures.push_back(failure);
  }

  void begin_anew() {
    auto comers = std::exchange(state_.next_run, {});
    state_ = State{.last_turn = now_};
    for (auto& [id, hello] : comers) joined(id, hello);
  }

  void tell_who_waits() {
    bool waits = state_.phase == Phase::Gathering || state_.phase == Phase::Stopping;
    if (!waits || now_ - state_.gathering_since < kPatience) return;
    std::string what = waiting_text(state_);
    std::string beside = beside_text(state_);
    if (what + beside == state_.last_told && now_ - state_.last_told_at < kRepeat) return;
    state_.last_told = what + beside;
    state_.last_told_at = now_;
    order::Tell tell{what + time_left_text(state_, now_) + beside};
    for (const auto& [id, node] : state_.nodes) {
      if (node.is_down) send(id, tell);
    }
  }

  State state_;
  MonoTime now_;
  std::vector<Action> actions_;
};

}  // namespace

Step step(State state, const Event& event, Now now) {
  Turn turn(std::move(state), now);
  std::visit(turn, event);
  return std::move(turn).result();
}

std::optional<MonoTime> deadline(const State& state) {
  if (state.nodes.empty()) return std::nullopt;
  MonoTime due = state.next_look;
  if (state.phase == Phase::Gathering && state.last_call) due = std::min(due, *state.last_call);
  return due;
}

bool is_over(const State& state) {
  return state.nodes.empty() && state.contenders.empty();
}

}  // namespace ddprun::rendezvous::coordinator
