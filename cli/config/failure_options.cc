// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/failure_options.h"

#include <algorithm>
#include <chrono>

#include "cli/config/parse.h"
#include "store/base/number.h"

namespace ddprun::cli {
namespace {

constexpr const char* kDefaultForwards = "SIGUSR1,SIGUSR2";
constexpr int kMaxExitCode = 255;

Result<std::set<int>> exit_codes(const OptionValue& value) {
  std::set<int> codes;
  for (const std::string& text : split_commas(value.text)) {
    std::optional<int> code = number_in<int>(text);
    if (!code || *code < 1 || *code > kMaxExitCode) {
      return invalid_value(value,
                           "a list of exit codes from 1 to 255, such as 3,42,139 (128 + n "
                           "is signal n)");
    }
    codes.insert(*code);
  }
  return codes;
}

// A signal in both lists stops the run.
Result<void> add_forwards(Draft& draft) {
  OptionValue forwards{kDefaultForwards, "--signals-to-forward"};
  const OptionValue* value = draft.given("signals-to-forward");
  if (value != nullptr) forwards = *value;
  if (forwards.text.empty()) return {};
  Result<std::vector<int>> signals = parse_signals(forwards);
  if (!signals) return signals.error();
  const std::vector<int>& stops = draft.config.agent.stop_signals;
  for (int signal : *signals) {
    bool is_stop = std::find(stops.begin(), stops.end(), signal) != stops.end();
    if (!is_stop) {
      draft.config.agent.forward_signals.push_back(signal);
    } else if (value != nullptr) {
      draft.note("--signals-to-handle and " + value->origin +
                 " share a signal, which stops the run");
    }
  }
  return {};
}

Result<void> add_hang_timeout(Draft& draft) {
  const OptionValue* timeout = draft.given("hang-timeout");
  if (timeout == nullptr || timeout->text == "0") return {};
  Result<double> seconds = parse_seconds(*timeout);
  if (!seconds) return seconds.error();
  draft.config.agent.hang_timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
  draft.workers().has_heartbeat = true;
  // So that SIGABRT, by which a hung worker is ended, makes Python write its stack.
  draft.workers().environment.try_emplace("PYTHONFAULTHANDLER", "1");
  return {};
}

// torch's file timers, as torchrun's agent has them: asked for by a variable, and the workers are
// told of the file by another.
Result<void> add_timers(Draft& draft) {
  auto& environment = draft.workers().environment;
  if (draft.inherited("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return {};
  draft.config.agent.has_timers = true;
  draft.config.agent.timer_path = draft.inherited("TORCHELASTIC_TIMER_FILE");
  environment.try_emplace("PYTHONFAULTHANDLER", "1");
  return {};
}

Result<void> add_exit_code(Draft& draft) {
  const OptionValue* style = draft.given("exit-code");
  if (style == nullptr || style->text == "distinct") return {};
  if (style->text != "worker" && style->text != "torchrun")
    return invalid_value(*style, "distinct, worker or torchrun");
  draft.config.agent.exit_codes =
      style->text == "worker" ? agent::ExitCodes::Worker : agent::ExitCodes::Torchrun;
  return {};
}

Result<void> add_events(Draft& draft) {
  const OptionValue* handler = draft.given("event-log-handler");
  if (handler == nullptr || handler->text == "null") return {};
  bool is_file = handler->text.starts_with("jsonl:") && handler->text.size() > 6;
  if (handler->text != "console" && !is_file)
    return invalid_value(*handler, "null, console or jsonl:PATH");
  draft.config.event_log = handler->text;
  return {};
}

}  // namespace

Result<void> add_failures(Draft& draft) {
  if (const OptionValue* codes = draft.given("no-restart-exit-codes");
      codes != nullptr && !codes->text.empty()) {
    Result<std::set<int>> parsed = exit_codes(*codes);
    if (!parsed) return parsed.error();
    draft.config.agent.no_restart_codes = std::move(*parsed);
  }
  for (auto part : {add_forwards, add_hang_timeout, add_timers, add_exit_code, add_events}) {
    Result<void> done = part(draft);
    if (!done) return done.error();
  }
  return {};
}

}  // namespace ddprun::cli
