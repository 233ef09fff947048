// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/stop_reason.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "store/base/variant.h"

namespace ddprun::agent::stop_reason {
namespace {

using worker::StopCause;
using worker::StopReason;

// One transition.
class StopReasonTransition {
 public:
  StopReasonTransition(State& state, Now now, const std::optional<Scheduler>& scheduler)
      : state_(state), now_(now), scheduler_(scheduler) {}

  std::vector<Action> actions() && { return std::move(actions_); }

  void operator()(const event::Cleared&) {
    state_.is_other_stopping = false;
    if (std::exchange(state_.written, Written::Nothing) != Written::Nothing)
      actions_.emplace_back(action::Remove{});
  }

  void operator()(const event::Published& event) {
    if (state_.is_stopping || outside_goes_first()) return write_known();
    write({.cause = event.cause, .words = event.words, .seconds_left = std::nullopt},
          Written::ReasonWithin);
  }

  void operator()(const event::Signalled& event) {
    learn(reason_of(event.request, ""));
    state_.signal = event.request.signal;
    if (event.request.is_stop) state_.is_stopping = true;
    ask(event.request, Whose::Own);
  }

  void operator()(const event::OtherSignalled& event) {
    if (state_.signal == 0) state_.signal = event.signal;
    state_.is_other_stopping = true;
    ask({.signal = event.signal, .is_stop = true}, Whose::Others);
  }

  void operator()(const event::Answered& event) {
    --state_.questions;
    auto waiting = std::exchange(state_.waiting, {});
    if (event.answer.empty() && ++state_.unanswered <= kMostUnanswered) {
      state_.asked_at.reset();
      for (const auto& [whose, request] : waiting) ask(request, whose);
      return;
    }
    if (!event.answer.empty()) state_.unanswered = 0;
    state_.answer = event.answer;
    use_answer(event.request, event.whose);
    for (const auto& [whose, request] : waiting) use_answer(request, whose);
  }

 private:
  StopReason reason_of(OutsideRequest request, std::string_view answer) const {
    return scheduler_ ? scheduler_->reason_of(request, now_.wall, answer)
                      : plain_reason_of(request);
  }

  void ask(OutsideRequest request, Whose whose) {
    if (!scheduler_ || !scheduler_->question) return;
    bool is_first_stop = request.is_stop && !state_.asked_about_stop.contains(whose);
    bool is_too_soon = state_.asked_at && now_.mono - *state_.asked_at < kBetweenQuestions;
    if (state_.questions < kMostQuestions && (is_first_stop || !is_too_soon)) {
      ++state_.questions;
      state_.asked_at = now_.mono;
      if (request.is_stop) state_.asked_about_stop.insert(whose);
      actions_.emplace_back(action::Ask{request, whose});
    } else if (state_.questions > 0) {
      state_.waiting[whose] = request;
    } else {
      use_answer(request, whose);
    }
  }

  void use_answer(OutsideRequest request, Whose whose) {
    if (state_.answer.empty()) return;
    StopReason reason = reason_of(request, state_.answer);
    // Of another node's signal only what concerns the job is of interest here.
    bool is_of_job = reason.cause != StopCause::Signal;
    if (is_of_job || whose == Whose::Own) learn(std::move(reason));
  }

  bool knows_of_job() const { return state_.reason && state_.reason->cause != StopCause::Signal; }

  // Before a reason within the run.
  bool outside_goes_first() const {
    bool is_warning =
        !state_.is_other_stopping && knows_of_job() && state_.reason->cause == StopCause::TimeLimit;
    return knows_of_job() && !is_warning;
  }

  // Never replaces a specific reason by a vaguer one.
  void learn(StopReason reason) {
    bool was_preempted = state_.reason && state_.reason->cause == StopCause::Preempted;
    bool is_vaguer = (knows_of_job() && reason.cause == StopCause::Signal) ||
                     (was_preempted && reason.cause == StopCause::Requeued);
    if (is_vaguer) return write_known();
    bool is_news = !state_.reason || state_.reason->words != reason.words;
    state_.reason = reason;
    state_.learned_at = now_.mono;
    write(reason, Written::ReasonFromOutside);
    if (is_news && reason.cause != StopCause::Signal)
      actions_.emplace_back(action::Announce{reason.words});
  }

  // What is known from outside, where the file does not hold it.
  void write_known() {
    if (state_.written == Written::ReasonFromOutside) return;
    StopReason reason = *state_.reason;
    if (reason.seconds_left) {
      auto since = std::chrono::floor<std::chrono::seconds>(now_.mono - state_.learned_at);
      reason.seconds_left = std::max(0, *reason.seconds_left - static_cast<int>(since.count()));
    }
    write(std::move(reason), Written::ReasonFromOutside);
  }

  void write(StopReason reason, Written what) {
    state_.written = what;
    actions_.emplace_back(action::Write{std::move(reason)});
  }

  State& state_;
  Now now_;
  const std::optional<Scheduler>& scheduler_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> step(State& state, const Event& event, Now now,
                         const std::optional<Scheduler>& scheduler) {
  StopReasonTransition transition(state, now, scheduler);
  std::visit(transition, event);
  return std::move(transition).actions();
}

std::string to_string(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ", ";
    text += std::visit(Overloaded{
                           [](const action::Write& write) {
                             return "write " + std::string(to_word(write.reason.cause)) + " (" +
                                    write.reason.words + ")";
                           },
                           [](const action::Remove&) { return std::string("remove"); },
                           [](const action::Ask&) { return std::string("ask"); },
                           [](const action::Announce&) { return std::string("announce"); },
                       },
                       action);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace ddprun::agent::stop_reason
