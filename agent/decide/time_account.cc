// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/time_account.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "store/base/exit_status.h"

namespace ddprun::agent {
namespace {

// A longer name of an exception is cut.
constexpr std::size_t kMostOfName = 40;

bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

// "ValueError" of "ValueError: boom"; empty where the message does not begin with a name.
std::string_view exception_of(std::string_view message) {
  auto is_of_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
  auto end = std::ranges::find_if_not(message, is_of_name);
  auto length = static_cast<std::size_t>(end - message.begin());
  bool is_name = length > 0 && end != message.end() && *end == ':';
  return is_name ? message.substr(0, std::min(length, kMostOfName)) : "";
}

std::string briefly(const rendezvous::Failure& failure) {
  if (has(failure.message, "OOM killer")) return "OOM";
  if (failure.message.starts_with("hung: ")) return "hang";
  if (has(failure.message, "CUDA out of memory")) return "CUDA out of memory";
  if (failure.status.signal != 0) return process::signal_name(failure.status.signal);
  std::string_view exception = exception_of(failure.message);
  return exception.empty() ? "exit code " + std::to_string(failure.status.exit_code)
                           : std::string(exception);
}

RestartCause::Kind kind_of(rendezvous::LossKind loss) {
  using Kind = RestartCause::Kind;
  switch (loss) {
    case rendezvous::LossKind::Left:
      return Kind::NodeLeft;
    case rendezvous::LossKind::CutOff:
      return Kind::NodeCutOff;
    case rendezvous::LossKind::Rendezvous:
      return Kind::RendezvousLost;
    case rendezvous::LossKind::Lost:
    case rendezvous::LossKind::Other:
      break;
  }
  return Kind::NodeLost;
}

}  // namespace

RestartCause cause_of(const rendezvous::command::Stop& stop) {
  using Kind = RestartCause::Kind;
  if (stop.failure) return {.what = briefly(*stop.failure), .node = stop.failure->node};
  bool is_joined = stop.cause == rendezvous::RoundEndCause::NodeJoined;
  return {.kind = is_joined ? Kind::NodeJoined : kind_of(stop.loss)};
}

void TimeKeeper::begin(MonoTime now) {
  began_ = now;
  since_ = now;
}

void TimeKeeper::enter(Doing doing, MonoTime now) {
  settle(now);
  if (doing == Doing::Training) {
    training_since_ = now;
    restarted_at_.reset();
    if (account_.until_training) restarted_at_ = now;
    if (!account_.until_training) account_.until_training = now - began_;
    if (auto cause = std::exchange(cause_, std::nullopt)) {
      auto same = std::ranges::find(account_.restarts, *cause, &RestartCost::cause);
      if (same == account_.restarts.end()) {
        account_.restarts.push_back({.cause = std::move(*cause)});
        same = std::prev(account_.restarts.end());
      }
      ++same->count;
      same->cost += now - trained_until_;
    }
  } else if (doing_ == Doing::Training) {
    trained_until_ = now;
  }
  doing_ = doing;
}

void TimeKeeper::hung(Duration time, MonoTime now) {
  settle(now);
  const MonoTime until = doing_ == Doing::Training ? now : trained_until_;
  const Duration longest = std::max(until - training_since_, Duration::zero());
  const Duration hung = std::clamp(time, Duration::zero(), longest);
  account_.spent.at(static_cast<std::size_t>(Doing::Training)) -= hung;
  account_.spent.at(static_cast<std::size_t>(Doing::Hanging)) += hung;
  training_since_ = until;  // what is before is judged
}

void TimeKeeper::interrupted(RestartCause cause) {
  bool has_trained = account_.until_training.has_value();
  if (has_trained && !cause_) cause_ = std::move(cause);
}

void TimeKeeper::connected(MonoTime at) {
  auto ran_at = std::exchange(restarted_at_, std::nullopt);
  if (!ran_at) return;
  ++account_.to_connect.restarts;
  account_.to_connect.spent += std::max(Duration::zero(), at - *ran_at);
}

TimeAccount TimeKeeper::account(MonoTime now) const {
  TimeKeeper until_now = *this;
  until_now.settle(now);
  until_now.account_.up = now - began_;
  return std::move(until_now.account_);
}

void TimeKeeper::settle(MonoTime now) {
  account_.spent.at(static_cast<std::size_t>(doing_)) += now - since_;
  since_ = now;
}

}  // namespace ddprun::agent
