// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/core.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "store/base/check.h"
#include "store/base/variant.h"

namespace ddprun::agent {
namespace {

// One transition: the state being changed and the actions being collected.  Each method is a row of
// the table in STATES.md.
class CoreTransition {
 public:
  CoreTransition(State state, Now now, const Config& config)
      : state_(std::move(state)), now_(now), config_(config) {}

  Step result() && { return {std::move(state_), std::move(actions_)}; }

  void operator()(const event::RoundJoined& event) {
    if (state_.phase == Phase::Finished) return;  // a shutdown overtook the join
    check(state_.phase == Phase::Joining, "a round was joined that nobody asked for");
    state_.phase = Phase::Running;
    state_.verdict = Verdict::None;
    state_.failure.reset();
    state_.kill_by.reset();
    state_.running = config_.local_world_size;
    state_.restart_count = event.restart_count;
    want(action::StartWorkers{state_.restart_count});
  }

  void operator()(const event::RendezvousFailed& event) {
    state_.error = event.why;
    decide(Verdict::End, kExitRendezvous);
  }

  void operator()(const event::StopOrdered&) { decide(Verdict::NextRound, 0); }

  void operator()(const event::RunEnded& event) { decide(Verdict::End, event.exit_code); }

  void operator()(const event::InspectOrdered& event) {
    bool is_asked_again = state_.phase == Phase::Inspecting && !state_.owes_findings;
    if (state_.phase == Phase::Running || is_asked_again) return inspect(event.wait);
    bool is_awaited = (state_.phase == Phase::Stopping || state_.phase == Phase::Waiting) &&
                      state_.verdict == Verdict::None && state_.shutdown_signal == 0;
    if (is_awaited) want(action::ReportFindings{});  // there is nothing to be seen
  }

  void operator()(const event::Inspected& event) {
    if (state_.phase != Phase::Inspecting) return;
    if (std::exchange(state_.owes_findings, false)) want(action::ReportFindings{event.findings});
  }

  void operator()(const event::StartFailed& event) {
    check(has_workers() || state_.phase == Phase::Stopping, "a start failed that nobody asked for");
    state_.running -= config_.local_world_size - event.started;
    if (state_.phase == Phase::Stopping) {
      if (state_.running > 0) return;
      return want_sweep();
    }
    // The run will hear of it at the next start, if there is one.
    if (state_.phase == Phase::Inspecting) return stop_inspecting_if_all_ended();
    if (event.is_final) state_.error = event.failure.message;
    want(action::ReportFailure{.failure = as_of_now(event.failure), .is_final = event.is_final});
    stop(WorkersEnd::StartFailed, SIGTERM);
  }

  void operator()(const event::WorkerExited& event) {
    check(has_workers() || state_.phase == Phase::Stopping, "a worker ended that did not run");
    check(state_.running > 0, "more workers ended than ran");
    --state_.running;
    if (state_.phase == Phase::Stopping) {
      if (state_.running == 0) want_sweep();
    } else if (state_.phase == Phase::Inspecting) {
      stop_inspecting_if_all_ended();  // a victim, too
    } else if (event.failure) {
      state_.failure = as_of_now(*event.failure);
      want(action::ReportFailure{
          .failure = *state_.failure, .is_final = event.is_final, .wait = event.wait});
      if (event.wait) return inspect(*event.wait);
      stop(WorkersEnd::WorkerFailed, event.is_hang ? SIGABRT : SIGTERM);
    } else if (state_.running == 0) {
      stop(WorkersEnd::Succeeded, SIGTERM);
    }
  }

  void operator()(const event::Swept&) {
    check(state_.phase == Phase::Stopping && state_.running == 0, "a sweep ended too early");
    state_.deadline.reset();
    state_.phase = Phase::Waiting;
    if (state_.workers_end == WorkersEnd::Succeeded && state_.verdict == Verdict::None) {
      want(action::ReportSuccess{});
    }
    follow();
  }

  void operator()(const event::DeadlineReached&) {
    if (state_.phase == Phase::Inspecting) return stop(reason_to_inspect(), SIGTERM);
    if (state_.phase != Phase::Stopping) return;
    if (!state_.is_killed) return kill_now();
    // SIGKILL has not ended them within its limit: nothing will that we could do.
    if (state_.running == 0) return;
    state_.running = 0;
    state_.deadline.reset();
    want(action::AbandonWorkers{});
    want_sweep();
  }

  void operator()(const event::LeaseEnding& event) {
    state_.kill_by = event.kill_by;
    if (state_.phase != Phase::Stopping || state_.is_killed) return;
    state_.deadline = std::min(state_.deadline.value_or(event.kill_by), event.kill_by);
  }

  void operator()(const event::ShutdownRequested& event) {
    switch (state_.phase) {
      case Phase::Joining:
      case Phase::Waiting:
        leave(event.signal);
        return finish(128 + event.signal);
      case Phase::Running:
      case Phase::Inspecting:
        state_.owes_findings = false;  // a request to stop does not wait for stacks
        leave(event.signal);
        return stop(WorkersEnd::ShutdownRequested, event.signal);
      case Phase::Stopping:
        // The second request is the user's impatience: no more grace.  The first one, during a
        // stop for another reason, only changes what follows.
        if (state_.shutdown_signal != 0) {
          bool is_repeated = config_.is_sigterm_repeated && event.signal == SIGTERM;
          bool is_impatient = now_.mono - state_.asked_at >= kOneRequest;
          if (is_impatient && !is_repeated) kill_now();
          return;
        }
        if (state_.workers_end == WorkersEnd::Succeeded) {
          asked(event.signal);
        } else {
          leave(event.signal);
          state_.workers_end = WorkersEnd::ShutdownRequested;
        }
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

  // Workers that are not being ended.
  bool has_workers() const {
    return state_.phase == Phase::Running || state_.phase == Phase::Inspecting;
  }

  // The workers run on until it is known what they do.
  void inspect(const rendezvous::TimedOutWait& wait) {
    state_.phase = Phase::Inspecting;
    state_.owes_findings = true;
    state_.deadline = now_.mono + config_.inspect_limit;
    if (state_.running > 0) return want(action::TakeStacks{wait});
    stop_inspecting_if_all_ended();
  }

  WorkersEnd reason_to_inspect() const {
    return state_.failure ? WorkersEnd::WorkerFailed : WorkersEnd::Ordered;
  }

  void stop_inspecting_if_all_ended() {
    if (state_.running == 0) stop(reason_to_inspect(), SIGTERM);
  }

  // The rendezvous has said what follows this round, or that none follows.
  void decide(Verdict verdict, int exit_code) {
    if (state_.phase == Phase::Finished || state_.verdict == Verdict::End) return;
    state_.verdict = verdict;
    state_.exit_code = exit_code;
    switch (state_.phase) {
      case Phase::Joining:
        if (verdict == Verdict::End) finish(exit_code);
        return;
      case Phase::Running:
        return stop(WorkersEnd::Ordered, SIGTERM);
      case Phase::Inspecting:
        state_.owes_findings = false;  // it is judged without them
        return stop(reason_to_inspect(), SIGTERM);
      case Phase::Waiting:
        return follow();
      case Phase::Stopping:
      case Phase::Finished:
        return;
    }
  }

  // What comes after a round whose workers are down, once that is known.
  void follow() {
    if (state_.workers_end == WorkersEnd::ShutdownRequested) {
      return finish(128 + state_.shutdown_signal);
    }
    switch (state_.verdict) {
      case Verdict::None:
        return;
      case Verdict::NextRound:
        // The request came after the workers' success, and did not count while that was the end.
        if (state_.shutdown_signal != 0) {
          leave(state_.shutdown_signal);
          return finish(128 + state_.shutdown_signal);
        }
        state_.phase = Phase::Joining;
        return want(action::JoinRound{});
      case Verdict::End:
        return finish(state_.exit_code);
    }
  }

  rendezvous::Failure as_of_now(rendezvous::Failure failure) const {
    failure.restart_count = state_.restart_count;
    failure.at = now_.wall;
    return failure;
  }

  void asked(int signal) {
    state_.shutdown_signal = signal;
    state_.asked_at = now_.mono;
  }

  void leave(int signal) {
    asked(signal);
    want(action::LeaveRun{signal});
  }

  void stop(WorkersEnd reason, int signal) {
    if (std::exchange(state_.owes_findings, false)) want(action::ReportFindings{});
    state_.phase = Phase::Stopping;
    state_.workers_end = reason;
    state_.is_killed = false;
    state_.deadline = now_.mono + config_.stop_grace;
    if (state_.kill_by) state_.deadline = std::min(*state_.deadline, *state_.kill_by);
    if (state_.running > 0) {
      want(action::SignalWorkers{signal});
    } else {
      want_sweep();
    }
  }

  // Once the grace is over (kill_now), what was left behind gets none either.
  void want_sweep() {
    if (state_.is_killed) state_.deadline.reset();
    want(action::Sweep{state_.deadline.value_or(now_.mono)});
  }

  void kill_now() {
    // A third signal, or more, does not lengthen the wait.
    if (!state_.is_killed) {
      state_.deadline.reset();
      if (state_.running > 0) state_.deadline = now_.mono + config_.kill_limit;
    }
    state_.is_killed = true;
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
  CoreTransition transition(std::move(state), now, config);
  std::visit(transition, event);
  return std::move(transition).result();
}

std::string to_string(Phase phase) {
  switch (phase) {
    case Phase::Joining:
      return "joining";
    case Phase::Running:
      return "running";
    case Phase::Inspecting:
      return "inspecting";
    case Phase::Stopping:
      return "stopping";
    case Phase::Waiting:
      return "waiting";
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
          [](const event::StopOrdered&) { return std::string("stop ordered"); },
          [](const event::RunEnded& ended) {
            return "run ended with " + std::to_string(ended.exit_code);
          },
          [](const event::InspectOrdered&) { return std::string("inspection ordered"); },
          [](const event::Inspected&) { return std::string("inspected"); },
          [](const event::StartFailed& failed) {
            return "start failed: " + failed.failure.message;
          },
          [](const event::WorkerExited& exited) {
            process::ExitStatus status;
            if (exited.failure) status = exited.failure->status;
            return "worker " + std::to_string(exited.local_rank) + " " + process::to_string(status);
          },
          [](const event::Swept&) { return std::string("swept"); },
          [](const event::DeadlineReached&) { return std::string("deadline reached"); },
          [](const event::LeaseEnding&) { return std::string("lease ending"); },
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
    text += std::visit(
        Overloaded{
            [](const action::JoinRound&) { return std::string("join"); },
            [](const action::ReportFailure& report) {
              return std::string(report.is_final ? "report final failure " : "report failure ") +
                     std::to_string(report.failure.status.shell_code());
            },
            [](const action::TakeStacks&) { return std::string("take stacks"); },
            [](const action::ReportFindings&) { return std::string("report findings"); },
            [](const action::ReportSuccess&) { return std::string("report success"); },
            [](const action::LeaveRun&) { return std::string("leave"); },
            [](const action::StartWorkers& start) {
              return "start attempt " + std::to_string(start.restart_count);
            },
            [](const action::SignalWorkers& signal) {
              return "signal " + process::signal_name(signal.signal);
            },
            [](const action::Sweep&) { return std::string("sweep"); },
            [](const action::KillNow&) { return std::string("kill now"); },
            [](const action::AbandonWorkers&) { return std::string("abandon"); },
            [](const action::Finish& finish) {
              return "finish " + std::to_string(finish.exit_code);
            },
        },
        action);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace ddprun::agent
