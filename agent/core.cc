// SPDX-License-Identifier: BSD-3-Clause
#include "agent/core.h"

#include <csignal>
#include <utility>

#include "store/base/check.h"
#include "store/base/variant.h"

namespace ddprun::agent {
namespace {

// One turn: the state being changed and the actions being collected.  Each method is a row of the
// table in STATES.md.
class Turn {
 public:
  Turn(State state, Now now, const Config& config)
      : state_(std::move(state)), now_(now), config_(config) {}

  Step result() && { return {std::move(state_), std::move(actions_)}; }

  void operator()(const event::RoundJoined&) {
    if (state_.phase == Phase::Finished) return;  // a shutdown overtook the join
    check(state_.phase == Phase::Joining, "a round was joined that nobody asked for");
    state_.phase = Phase::Running;
    state_.running = config_.local_world_size;
    want(action::StartWorkers{state_.restart_count});
  }

  void operator()(const event::RendezvousFailed& event) {
    if (state_.phase == Phase::Finished) return;
    check(state_.phase == Phase::Joining, "a rendezvous failed that nobody asked for");
    state_.error = event.why;
    finish(kExitInfrastructure);
  }

  void operator()(const event::StartFailed& event) {
    check(state_.phase == Phase::Running, "a start failed that nobody asked for");
    state_.running = event.started;
    state_.error = event.why;
    stop(StopReason::StartFailed, SIGTERM);
  }

  void operator()(const event::WorkerExited& event) {
    check(state_.phase == Phase::Running || state_.phase == Phase::Stopping,
          "a worker ended that did not run");
    check(state_.running > 0, "more workers ended than ran");
    --state_.running;
    if (state_.phase == Phase::Stopping) {
      if (state_.running == 0) want_sweep();
    } else if (!event.status.is_success()) {
      state_.failures.push_back({.rank = event.rank,
                                 .local_rank = event.local_rank,
                                 .pid = event.pid,
                                 .status = event.status,
                                 .message = event.message,
                                 .attempt = state_.restart_count,
                                 .at = now_.mono});
      stop(StopReason::WorkerFailed, SIGTERM);
    } else if (state_.running == 0) {
      stop(StopReason::Succeeded, SIGTERM);
    }
  }

  void operator()(const event::Swept&) {
    check(state_.phase == Phase::Stopping && state_.running == 0, "a sweep ended too early");
    state_.deadline.reset();
    switch (state_.stop_reason) {
      case StopReason::Succeeded:
        return finish(0);
      case StopReason::StartFailed:
        return finish(kExitCannotStart);
      case StopReason::ShutdownRequested:
        return finish(128 + state_.shutdown_signal);
      case StopReason::WorkerFailed:
        break;
    }
    if (state_.restart_count >= config_.max_restarts) {
      return finish(state_.failures.back().status.shell_code());
    }
    ++state_.restart_count;
    state_.phase = Phase::Joining;
    want(action::JoinRound{});
  }

  void operator()(const event::DeadlineReached&) {
    if (state_.phase == Phase::Stopping) kill_now();
  }

  void operator()(const event::ShutdownRequested& event) {
    switch (state_.phase) {
      case Phase::Joining:
        state_.shutdown_signal = event.signal;
        return finish(128 + event.signal);
      case Phase::Running:
        state_.shutdown_signal = event.signal;
        return stop(StopReason::ShutdownRequested, event.signal);
      case Phase::Stopping:
        // The second request is the user's impatience: no more grace.  The first one, during a
        // stop for another reason, only changes what follows.
        if (state_.shutdown_signal != 0) return kill_now();
        state_.shutdown_signal = event.signal;
        if (state_.stop_reason != StopReason::Succeeded)
          state_.stop_reason = StopReason::ShutdownRequested;
        return;
      case Phase::Finished:
        return;
    }
  }

 private:
  template <class OneAction>
  void want(OneAction action) {
    actions_.emplace_back(std::move(action));
  }

  void stop(StopReason reason, int signal) {
    state_.phase = Phase::Stopping;
    state_.stop_reason = reason;
    state_.deadline = now_.mono + config_.stop_grace;
    if (state_.running > 0) {
      want(action::SignalWorkers{signal});
    } else {
      want_sweep();
    }
  }

  // Once the grace is over (kill_now), what was left behind gets none either.
  void want_sweep() { want(action::Sweep{state_.deadline.value_or(now_.mono)}); }

  void kill_now() {
    state_.deadline.reset();
    want(action::KillNow{});
  }

  void finish(int exit_code) {
    state_.phase = Phase::Finished;
    want(action::Finish{exit_code});
  }

  State state_;
  Now now_;
  const Config& config_;
  std::vector<Action> actions_;
};

}  // namespace

Step begin() {
  return {State{}, {action::JoinRound{}}};
}

Step step(State state, const Event& event, Now now, const Config& config) {
  Turn turn(std::move(state), now, config);
  std::visit(turn, event);
  return std::move(turn).result();
}

std::string to_string(Phase phase) {
  switch (phase) {
    case Phase::Joining:
      return "joining";
    case Phase::Running:
      return "running";
    case Phase::Stopping:
      return "stopping";
    case Phase::Finished:
      return "finished";
  }
  return "?";
}

std::string to_string(const Event& event) {
  return std::visit(
      Overloaded{
          [](const event::RoundJoined&) { return std::string("round joined"); },
          [](const event::RendezvousFailed& failed) { return "rendezvous failed: " + failed.why; },
          [](const event::StartFailed& failed) { return "start failed: " + failed.why; },
          [](const event::WorkerExited& exited) {
            return "worker " + std::to_string(exited.local_rank) + " " +
                   process::to_string(exited.status);
          },
          [](const event::Swept&) { return std::string("swept"); },
          [](const event::DeadlineReached&) { return std::string("deadline reached"); },
          [](const event::ShutdownRequested& request) {
            return "shutdown requested by " + process::signal_name(request.signal);
          },
      },
      event);
}

std::string to_string(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ", ";
    text += std::visit(Overloaded{
                           [](const action::JoinRound&) { return std::string("join"); },
                           [](const action::StartWorkers& start) {
                             return "start attempt " + std::to_string(start.restart_count);
                           },
                           [](const action::SignalWorkers& signal) {
                             return "signal " + process::signal_name(signal.signal);
                           },
                           [](const action::Sweep&) { return std::string("sweep"); },
                           [](const action::KillNow&) { return std::string("kill now"); },
                           [](const action::Finish& finish) {
                             return "finish " + std::to_string(finish.exit_code);
                           },
                       },
                       action);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace ddprun::agent
