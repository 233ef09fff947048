// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/failure_options.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun;
using namespace ddprun::cli;

namespace {

struct Given {
  Options options;
  Machine machine;
  ConfigBuilder builder{.options = options, .machine = machine};

  Given(std::initializer_list<std::pair<const char*, const char*>> values) {
    for (auto [name, text] : values) options.values[name] = {text, "--" + std::string(name)};
    builder.config.agent.stop_signals = {SIGTERM};
  }
  std::string refusal() {
    Result<void> done = add_failures(builder);
    return done ? "" : to_string(done.error());
  }
};

}  // namespace

TEST_SUITE("cli/config/failure_options") {
  TEST_CASE("without options only the user's signals pass through") {
    Given given({});
    REQUIRE(given.refusal() == "");
    CHECK(given.builder.config.agent.forward_signals == std::vector{SIGUSR1, SIGUSR2});
    CHECK(given.builder.config.agent.hang_timeout == Duration::zero());
    CHECK(given.builder.config.agent.no_restart_codes.empty());
    CHECK(given.builder.config.agent.exit_codes == agent::ExitCodes::Distinct);
    CHECK_FALSE(given.builder.config.agent.has_timers);
    CHECK(given.builder.config.event_log == "");
  }

  TEST_CASE("each option") {
    Given given({{"signals-to-forward", "SIGUSR1,SIGTERM"},
                 {"no-restart-exit-codes", "3,139"},
                 {"hang-timeout", "1.5"},
                 {"exit-code", "torchrun"},
                 {"event-log-handler", "jsonl:/x"}});
    REQUIRE(given.refusal() == "");
    const LaunchConfig& config = given.builder.config;
    CHECK(config.agent.forward_signals == std::vector{SIGUSR1});
    CHECK(config.notes.size() == 1);
    CHECK(config.agent.no_restart_codes == std::set{3, 139});
    CHECK(config.agent.hang_timeout == std::chrono::milliseconds(1500));
    CHECK(config.agent.workers.has_heartbeat);
    CHECK(config.agent.workers.environment.at("PYTHONFAULTHANDLER") == "1");
    CHECK(config.agent.exit_codes == agent::ExitCodes::Torchrun);
    CHECK(config.event_log == "jsonl:/x");
  }

  TEST_CASE("'' and 0 switch off") {
    Given given({{"signals-to-forward", ""}, {"hang-timeout", "0"}, {"no-restart-exit-codes", ""}});
    REQUIRE(given.refusal() == "");
    CHECK(given.builder.config.agent.forward_signals.empty());
    CHECK_FALSE(given.builder.workers().has_heartbeat);
  }

  TEST_CASE("warm restarts are for Python scripts") {
    Given given({{"warm-restarts", ""}, {"warm-imports", "torch,a.b"}});
    REQUIRE(given.refusal() == "");
    CHECK(given.builder.workers().has_warm_restarts);
    CHECK(given.builder.workers().warm_imports == std::vector<std::string>{"torch", "a.b"});
    CHECK_FALSE(given.builder.workers().has_warm_start);
    CHECK(given.builder.config.notes.empty());
    CHECK_FALSE(given.builder.workers().could_be_warm);
    Given without({});
    REQUIRE(without.refusal() == "");
    CHECK(without.builder.workers().could_be_warm);
    Given program({});
    program.builder.why_cold = "for a program that is no Python script";
    REQUIRE(program.refusal() == "");
    CHECK_FALSE(program.builder.workers().could_be_warm);
    Given start({{"warm-start", ""}, {"warm-imports", "torch"}});
    REQUIRE(start.refusal() == "");
    CHECK(start.builder.workers().has_warm_restarts);
    CHECK(start.builder.workers().has_warm_start);
    CHECK(start.builder.config.notes.empty());
    Given native({{"warm-restarts", ""}});
    native.builder.why_cold = "for a program that is no Python script";
    REQUIRE(native.refusal() == "");
    CHECK_FALSE(native.builder.workers().has_warm_restarts);
    CHECK(native.builder.config.notes ==
          std::vector<std::string>{
              "--warm-restarts has no effect for a program that is no Python script"});
    Given alone({{"warm-imports", "torch"}});
    REQUIRE(alone.refusal() == "");
    CHECK_FALSE(alone.builder.workers().has_warm_restarts);
    CHECK(alone.builder.config.notes.size() == 1);
    CHECK(Given({{"warm-imports", "torch,,x"}}).refusal() ==
          "--warm-imports='torch,,x' is not a list of Python modules, such as torch,transformers");
  }

  TEST_CASE("what is not understood is named") {
    CHECK(Given({{"no-restart-exit-codes", "3,x"}}).refusal().find("'3,x'") != std::string::npos);
    CHECK(Given({{"no-restart-exit-codes", "0"}}).refusal() != "");
    CHECK(Given({{"no-restart-exit-codes", "256"}}).refusal() != "");
    CHECK(Given({{"hang-timeout", "-1"}}).refusal() ==
          "--hang-timeout='-1' is not 0 (never) or a number of seconds up to 1000000000");
    CHECK(Given({{"signals-to-forward", "SIGKILL"}}).refusal() != "");
    CHECK(Given({{"exit-code", "x"}}).refusal() ==
          "--exit-code='x' is not distinct, worker or torchrun");
    CHECK(Given({{"event-log-handler", "jsonl:"}}).refusal() ==
          "--event-log-handler='jsonl:' is not null, console or jsonl:PATH");
  }
}
