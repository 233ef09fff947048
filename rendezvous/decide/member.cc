// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/member.h"

#include <algorithm>
#include <utility>

#include "rendezvous/decide/waiting_text.h"

namespace ddprun::rendezvous::member {
namespace {

constexpr Duration kRetryPause = std::chrono::milliseconds(200);
constexpr Duration kPatience = std::chrono::seconds(2);  // until people are told of a wait
constexpr Duration kRepeat = std::chrono::seconds(20);

Duration keep_alive_interval(const State& state, const Config& config) {
  return state.rules ? state.rules->keep_alive_interval : config.hello.policy.keep_alive_interval;
}

// One turn: the state being changed and the actions being collected.
class Turn {
 public:
  Turn(State state, Now now, const Config& config)
      : state_(std::move(state)), now_(now.mono), config_(config) {}

  Step result() && { return {std::move(state_), std::move(actions_)}; }

  void operator()(const event::RoundWanted& event) {
    state_.wants_round = true;
    state_.store_port = event.store_port;
    switch (state_.link) {
      case Link::Down:
        return connect();
      case Link::Connecting:
        return;
      case Link::Up:
        if (!state_.is_joined) return join();
        return post(request::Ready{.round = state_.last ? state_.last->number : 0,
                                   .store_port = event.store_port});
    }
  }

  void operator()(const event::WorkerFailed& event) {
    if (!state_.is_joined || !state_.last) return;  // the agent has been told to stop already
    post(request::Failed{.round = state_.last->number,
                         .failure = event.failure,
                         .exit_code = event.exit_code,
                         .is_final = event.is_final});
  }

  void operator()(const event::WorkersSucceeded&) {
    if (state_.is_joined && state_.last) post(request::Succeeded{.round = state_.last->number});
  }

  void operator()(const event::Leaving& event) {
    if (state_.is_joined) post(request::Leave{.why = event.why, .signal = event.signal});
    state_.is_over = true;
  }

  void operator()(const event::Connected& event) {
    state_.link = Link::Up;
    state_.address = event.address;
    state_.pulse.clear();
    state_.pulse_at = now_;
    state_.asked_at.reset();
    state_.last_tick = now_;
    state_.rules.reset();
    if (!state_.told.empty()) want(action::TellPeople{"reached " + config_.endpoint});
    state_.told.clear();
    if (state_.wants_round) join();
  }

  void operator()(const event::ConnectFailed& event) {
    Duration waited = now_ - state_.connecting_since;
    if (event.is_final || waited >= config_.patience()) {
      state_.link = Link::Down;
      state_.is_over = true;
      if (event.is_final) return want(action::TellFailed{event.why});
      std::string why = event.why + "; tried for " + coordinator::seconds_text(waited);
      if (!config_.is_spare || state_.last) return want(action::TellFailed{std::move(why)});
      return want(action::TellEnd{{.why = "this spare node was not needed: " + why}});
    }
    bool is_due = event.why != state_.told || now_ - state_.told_at >= kRepeat;
    if (waited >= kPatience && is_due) {
      state_.told = event.why;
      state_.told_at = now_;
      want(action::TellPeople{event.why + "; trying for " +
                              coordinator::seconds_text(config_.patience() - waited) + " more"});
    }
    // Its will may have been heard: the host would take a later node of this name for lost.
    ++state_.life;
    want(action::Connect{.node = node_id(state_, config_), .after = kRetryPause});
  }

  void operator()(const event::ConnectionLost& event) {
    cut_off(config_.endpoint + ", where the nodes meet, was lost: " + event.why);
  }

  void operator()(const event::Heard& event) {
    std::visit([&](const auto& order) { heard(order); }, event.order);
  }

  void operator()(const event::PulseSeen& event) {
    MonoTime asked_at = state_.asked_at.value_or(now_);
    state_.asked_at.reset();
    if (event.pulse == state_.pulse) return;
    state_.pulse = event.pulse;
    state_.pulse_at = asked_at;
  }

  void operator()(const event::Tick&) {
    Duration since_tick = now_ - std::exchange(state_.last_tick, now_);
    if (state_.link != Link::Up) return;
    Duration limit = lease(state_, config_);
    // Who was stopped for so long has been given up by the others, or soon will be.
    if (since_tick >= limit) {
      return cut_off("this node was stopped for " + coordinator::seconds_text(since_tick));
    }
    if (now_ - state_.pulse_at >= limit) {
      return cut_off(config_.endpoint + ", where the nodes meet, has been silent for " +
                     coordinator::seconds_text(now_ - state_.pulse_at));
    }
    if (!state_.is_joined) {
      state_.pulse_at = now_;  // nobody is asked, and nobody counts on this node
      return;
    }
    if (!state_.asked_at) state_.asked_at = now_;
    want(action::Beat{letter(request::Beat{})});
  }

 private:
  template <class OneAction>
  void want(OneAction action) {
    actions_.emplace_back(std::move(action));
  }

  Letter letter(Request request) const {
    return {.run = config_.run, .node = node_id(state_, config_), .request = std::move(request)};
  }
  void post(Request request) { want(action::Post{letter(std::move(request))}); }

  void connect() {
    state_.link = Link::Connecting;
    state_.connecting_since = now_;
    want(action::Connect{.node = node_id(state_, config_)});
  }

  void join() {
    request::Join hello = config_.hello;
    if (hello.address.empty()) hello.address = state_.address;
    hello.store_port = state_.store_port;
    hello.restart_count = state_.restart_count;
    if (state_.last) {
      hello.previous_rank = state_.last->ranks.group_rank;
      hello.next_round = state_.last->number + 1;
      hello.incarnation = state_.last->incarnation;
      hello.previous_nodes = state_.last->ranks.group_world_size;
    }
    state_.is_joined = true;
    state_.joined_at = now_;
    post(std::move(hello));
  }

  // The coordinator has lost this node, or must be taken to have: its workers must end before the
  // others' next ones can be disturbed, and it comes back as somebody new.
  void cut_off(const std::string& why) {
    state_.is_joined = false;
    ++state_.life;
    want(action::Disconnect{});
    connect();
    bool has_workers = state_.last && !state_.wants_round;
    if (has_workers) {
      want(action::TellStop{{.round = state_.last->number,
                             .cause = StopCause::NodeLost,
                             .why = why,
                             .restart_count = state_.restart_count,
                             .max_restarts = state_.last->max_restarts}});
    } else {
      want(action::TellPeople{why});
    }
  }

  void heard(const order::Round& round) {
    if (!state_.wants_round || !state_.is_joined) return;
    state_.wants_round = false;
    state_.restart_count = round.restart_count;
    state_.last = round;
    want(action::TellRound{round});
  }
  void heard(const order::Stop& stop) {
    bool is_ours =
        state_.is_joined && !state_.wants_round && state_.last && state_.last->number == stop.round;
    if (!is_ours) return;
    state_.restart_count = stop.restart_count;
    want(action::TellStop{stop});
  }
  void heard(const order::End& end) {
    post(request::Leave{});
    state_.is_over = true;
    want(action::TellEnd{end});
  }
  void heard(const order::Refuse& refuse) {
    state_.is_over = true;
    want(action::TellFailed{"this node was refused at " + config_.endpoint + ": " + refuse.why});
  }
  void heard(const order::Standby& standby) {
    want(action::TellPeople{"standing by: " + standby.why});
  }
  void heard(const order::Tell& tell) { want(action::TellPeople{tell.text}); }
  // From now on the coordinator's patience counts, and it began with the join.
  void heard(const order::GoBy& rules) {
    state_.rules = rules;
    state_.last_tick = now_;
    state_.pulse_at = std::max(state_.pulse_at, state_.joined_at);
    want(action::TellPeople{rules.text});
  }
  void heard(const order::Dropped& dropped) {
    cut_off("the others have given this node up: " + dropped.why);
  }

  State state_;
  MonoTime now_;
  const Config& config_;
  std::vector<Action> actions_;
};

}  // namespace

Step step(State state, const Event& event, Now now, const Config& config) {
  if (state.is_over) return {std::move(state), {}};
  Turn turn(std::move(state), now, config);
  std::visit(turn, event);
  return std::move(turn).result();
}

std::string node_id(const State& state, const Config& config) {
  return config.name + "." + std::to_string(state.life);
}

MonoTime next_tick(const State& state, const Config& config) {
  if (state.is_over || state.link != Link::Up) return MonoTime::max();
  MonoTime beat = state.last_tick + keep_alive_interval(state, config);
  return state.is_joined ? std::min(beat, state.pulse_at + lease(state, config)) : beat;
}

Duration lease(const State& state, const Config& config) {
  Duration limit = state.rules
                       ? state.rules->keep_alive_interval * state.rules->keep_alive_max_attempt
                       : config.hello.policy.silence_limit();
  return limit - keep_alive_interval(state, config) / 2;
}

}  // namespace ddprun::rendezvous::member
