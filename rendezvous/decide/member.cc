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
  return state.keep_alive ? state.keep_alive->keep_alive_interval
                          : config.node.policy.keep_alive_interval;
}

// One step: the state being changed and the actions being collected.
class MemberTransition {
 public:
  MemberTransition(State state, Now now, const Config& config)
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
    state_.keep_alive.reset();
    if (!state_.told.empty()) want(action::NotifyUser{"reached " + config_.endpoint});
    state_.told.clear();
    if (state_.wants_round) join();
  }

  void operator()(const event::ConnectFailed& event) {
    Duration waited = now_ - state_.connecting_since;
    if (event.is_final || waited >= config_.patience()) {
      state_.link = Link::Down;
      state_.is_over = true;
      if (event.is_final) return want(action::NotifyFailure{event.why});
      std::string why = event.why + "; tried for " + coordinator::seconds_text(waited);
      if (!config_.is_spare || state_.last) return want(action::NotifyFailure{std::move(why)});
      return want(action::NotifyEnd{{.why = "this spare node was not needed: " + why}});
    }
    bool is_due = event.why != state_.told || now_ - state_.told_at >= kRepeat;
    if (waited >= kPatience && is_due) {
      state_.told = event.why;
      state_.told_at = now_;
      want(action::NotifyUser{event.why + "; trying for " +
                              coordinator::seconds_text(config_.patience() - waited) + " more"});
    }
    // Its will may have been heard: the host would take a later node of this name for lost.
    ++state_.incarnation;
    want(action::Connect{.node = node_id(state_, config_), .after = kRetryPause});
  }

  void operator()(const event::ConnectionLost& event) {
    cut_off(config_.endpoint + ", where the nodes meet, was lost: " + event.why);
  }

  void operator()(const event::Heard& event) {
    std::visit([&](const auto& command) { heard(command); }, event.command);
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
    want(action::Heartbeat{message(request::Heartbeat{})});
  }

 private:
  template <class OneAction>
  void want(OneAction action) {
    actions_.emplace_back(std::move(action));
  }

  Message message(Request request) const {
    return {.run = config_.run, .node = node_id(state_, config_), .request = std::move(request)};
  }
  void post(Request request) { want(action::Post{message(std::move(request))}); }

  void connect() {
    state_.link = Link::Connecting;
    state_.connecting_since = now_;
    want(action::Connect{.node = node_id(state_, config_)});
  }

  void join() {
    const NodeConfig& node = config_.node;
    request::Join join{.host = node.host,
                       .address = node.address.empty() ? state_.address : node.address,
                       .pid = node.pid,
                       .participant = node.participant,
                       .settings = node.settings,
                       .policy = node.policy,
                       .store_port = state_.store_port,
                       .node_rank = node.node_rank,
                       .restart_count = state_.restart_count,
                       .preflight_failure = node.preflight_failure};
    if (state_.last) {
      join.previous_rank = state_.last->ranks.group_rank;
      join.next_round = state_.last->number + 1;
      join.run_uuid = state_.last->run_uuid;
      join.previous_nodes = state_.last->ranks.group_world_size;
    }
    state_.is_joined = true;
    state_.joined_at = now_;
    post(std::move(join));
  }

  // The coordinator has lost this node, or must be taken to have: its workers must end before the
  // others' next ones can be disturbed, and it comes back as somebody new.
  void cut_off(const std::string& why) {
    state_.is_joined = false;
    ++state_.incarnation;
    want(action::Disconnect{});
    connect();
    bool has_workers = state_.last && !state_.wants_round;
    if (has_workers) {
      want(action::NotifyStop{{.round = state_.last->number,
                               .cause = StopCause::NodeLost,
                               .why = why,
                               .restart_count = state_.restart_count,
                               .max_restarts = state_.last->max_restarts}});
      want(action::NotifyWaiting{why});
    } else {
      want(action::NotifyUser{why});
    }
  }

  void heard(const command::Round& round) {
    if (!state_.wants_round || !state_.is_joined) return;
    state_.wants_round = false;
    state_.restart_count = round.restart_count;
    state_.last = round;
    want(action::NotifyRound{round});
  }
  void heard(const command::Stop& stop) {
    bool is_ours =
        state_.is_joined && !state_.wants_round && state_.last && state_.last->number == stop.round;
    if (!is_ours) return;
    state_.restart_count = stop.restart_count;
    want(action::NotifyStop{stop});
  }
  void heard(const command::Waiting& waiting) {
    if (state_.is_joined && state_.wants_round) want(action::NotifyWaiting{waiting.why});
  }
  void heard(const command::End& end) {
    post(request::Leave{});
    state_.is_over = true;
    want(action::NotifyEnd{end});
  }
  void heard(const command::Refuse& refuse) {
    state_.is_over = true;
    want(action::NotifyFailure{"this node was refused at " + config_.endpoint + ": " + refuse.why});
  }
  void heard(const command::Standby& standby) {
    want(action::NotifyUser{"standing by: " + standby.why});
  }
  void heard(const command::Info& info) { want(action::NotifyUser{info.text}); }
  // From now on the coordinator's patience counts, and it began with the join.
  void heard(const command::KeepAlive& keep_alive) {
    state_.keep_alive = keep_alive;
    state_.last_tick = now_;
    state_.pulse_at = std::max(state_.pulse_at, state_.joined_at);
    want(action::NotifyUser{keep_alive.text});
  }
  void heard(const command::Dropped& dropped) {
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
  MemberTransition transition(std::move(state), now, config);
  std::visit(transition, event);
  return std::move(transition).result();
}

std::string node_id(const State& state, const Config& config) {
  return config.name + "." + std::to_string(state.incarnation);
}

MonoTime next_tick(const State& state, const Config& config) {
  if (state.is_over || state.link != Link::Up) return MonoTime::max();
  MonoTime beat = state.last_tick + keep_alive_interval(state, config);
  return state.is_joined ? std::min(beat, state.pulse_at + lease(state, config)) : beat;
}

Duration lease(const State& state, const Config& config) {
  Duration limit = state.keep_alive ? state.keep_alive->keep_alive_interval *
                                          state.keep_alive->keep_alive_max_attempt
                                    : config.node.policy.silence_limit();
  return limit - keep_alive_interval(state, config) / 2;
}

}  // namespace ddprun::rendezvous::member
