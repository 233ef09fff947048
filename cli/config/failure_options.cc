// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/failure_options.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <limits>

#include "cli/options/parse.h"
#include "store/base/number.h"

namespace ddprun::cli {
namespace {

constexpr const char* kDefaultStops = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
constexpr const char* kDefaultForwards = "SIGUSR1,SIGUSR2";
constexpr int kMaxExitCode = 255;
constexpr int kMaxGraceSeconds = 1'000'000;

Result<void> add_restarts(ConfigBuilder& builder) {
  const OptionValue* restarts = builder.given("max-restarts");
  if (restarts == nullptr) return {};
  Result<int> count = parse_whole(*restarts, 0, std::numeric_limits<int>::max());
  if (!count) return count.error();
  builder.config.max_restarts = *count;
  return {};
}

Result<void> add_stop_grace(ConfigBuilder& builder) {
  OptionValue grace{builder.inherited("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
                    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"};
  const OptionValue* given = builder.given("shutdown-timeout");
  if (given != nullptr) grace = *given;
  if (given == nullptr && grace.text.empty()) return {};
  Result<int> seconds = parse_whole(grace, 0, kMaxGraceSeconds);
  if (!seconds) return seconds.error();
  builder.config.agent.core.stop_grace = std::chrono::seconds(*seconds);
  return {};
}

Result<void> add_stop_signals(ConfigBuilder& builder) {
  OptionValue signals{kDefaultStops, "--signals-to-handle"};
  if (const OptionValue* value = builder.given("signals-to-handle")) signals = *value;
  Result<std::vector<int>> numbers = parse_signals(signals);
  if (!numbers) return numbers.error();
  builder.config.agent.stop_signals = std::move(*numbers);
  builder.workers().environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = signals.text;
  return {};
}

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
Result<void> add_forwards(ConfigBuilder& builder) {
  OptionValue forwards{kDefaultForwards, "--signals-to-forward"};
  const OptionValue* value = builder.given("signals-to-forward");
  if (value != nullptr) forwards = *value;
  if (forwards.text.empty()) return {};
  Result<std::vector<int>> signals = parse_signals(forwards);
  if (!signals) return signals.error();
  const std::vector<int>& stops = builder.config.agent.stop_signals;
  for (int signal : *signals) {
    bool is_stop = std::find(stops.begin(), stops.end(), signal) != stops.end();
    if (!is_stop) {
      builder.config.agent.forward_signals.push_back(signal);
    } else if (value != nullptr) {
      builder.note("--signals-to-handle and " + value->origin +
                   " share a signal, which stops the run");
    }
  }
  return {};
}

Result<void> add_hang_timeout(ConfigBuilder& builder) {
  const OptionValue* timeout = builder.given("hang-timeout");
  if (timeout == nullptr || timeout->text == "0") return {};
  Result<double> seconds = parse_seconds(*timeout);
  if (!seconds) return invalid_value(*timeout, "0 (never) or a number of seconds up to 1000000000");
  builder.config.agent.hang_timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
  builder.workers().has_heartbeat = true;
  // So that SIGABRT, by which a hung worker is ended, makes Python write its stack.
  builder.workers().environment.try_emplace("PYTHONFAULTHANDLER", "1");
  return {};
}

// torch's file timers, as torchrun's agent has them: one variable asks for them, and another names
// the file to the workers.
Result<void> add_timers(ConfigBuilder& builder) {
  auto& environment = builder.workers().environment;
  if (builder.inherited("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return {};
  builder.config.agent.has_timers = true;
  builder.config.agent.timer_path = builder.inherited("TORCHELASTIC_TIMER_FILE");
  environment.try_emplace("PYTHONFAULTHANDLER", "1");
  return {};
}

Result<void> add_exit_code(ConfigBuilder& builder) {
  const OptionValue* style = builder.given("exit-code");
  if (style == nullptr || style->text == "distinct") return {};
  if (style->text != "worker" && style->text != "torchrun")
    return invalid_value(*style, "distinct, worker or torchrun");
  builder.config.agent.exit_codes =
      style->text == "worker" ? agent::ExitCodes::Worker : agent::ExitCodes::Torchrun;
  return {};
}

Result<void> add_events(ConfigBuilder& builder) {
  const OptionValue* handler = builder.given("event-log-handler");
  if (handler == nullptr || handler->text == "null") return {};
  bool is_file = handler->text.starts_with("jsonl:") && handler->text.size() > 6;
  if (handler->text != "console" && !is_file)
    return invalid_value(*handler, "null, console or jsonl:PATH");
  builder.config.event_log = handler->text;
  return {};
}

Result<void> add_no_restart_codes(ConfigBuilder& builder) {
  const OptionValue* codes = builder.given("no-restart-exit-codes");
  if (codes == nullptr || codes->text.empty()) return {};
  Result<std::set<int>> parsed = exit_codes(*codes);
  if (!parsed) return parsed.error();
  builder.config.agent.no_restart_codes = std::move(*parsed);
  return {};
}

// A list of Python modules: "torch,transformers".
Result<std::vector<std::string>> module_names(const OptionValue& value) {
  std::vector<std::string> names = split_commas(value.text);
  for (const std::string& name : names) {
    bool is_name = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.' || c >= 0x80;
    });
    if (!is_name)
      return invalid_value(value, "a list of Python modules, such as torch,transformers");
  }
  return names;
}

Result<void> add_warm_restarts(ConfigBuilder& builder) {
  const OptionValue* start = builder.given("warm-start");
  const OptionValue* warm = start != nullptr ? start : builder.given("warm-restarts");
  const OptionValue* imports = builder.given("warm-imports");
  if (imports != nullptr && !imports->text.empty()) {
    Result<std::vector<std::string>> names = module_names(*imports);
    if (!names) return names.error();
    builder.workers().warm_imports = std::move(*names);
    if (warm == nullptr) builder.note(imports->origin + " has no effect without --warm-restarts");
  }
  builder.workers().could_be_warm = warm == nullptr && builder.why_cold.empty();
  if (warm == nullptr) return {};
  if (builder.why_cold.empty()) {
    builder.workers().has_warm_restarts = true;
    builder.workers().has_warm_start = start != nullptr;
  } else {
    builder.note(warm->origin + " has no effect " + builder.why_cold);
  }
  return {};
}

}  // namespace

Result<void> add_failures(ConfigBuilder& builder) {
  for (auto part :
       {add_restarts, add_stop_grace, add_stop_signals, add_no_restart_codes, add_forwards,
        add_hang_timeout, add_timers, add_exit_code, add_events, add_warm_restarts}) {
    Result<void> done = part(builder);
    if (!done) return done.error();
  }
  return {};
}

}  // namespace ddprun::cli
