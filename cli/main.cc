// SPDX-License-Identifier: BSD-3-Clause
//
// ddprun: parse, configure, run, exit.
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "agent/decide/core.h"
#include "cli/config/launch_config.h"
#include "cli/exit_code_file.h"
#include "cli/launch.h"
#include "cli/machine.h"
#include "cli/options/options.h"
#include "cli/print.h"
#include "cli/standard_streams.h"
#include "store/auth/secret.h"
#include "store/base/signal_mask.h"

namespace {

using namespace ddprun;

// What was asked for, and no run.
int answer(const std::string& text) {
  Result<void> printed = cli::print(text);
  return printed ? 0 : cli::refuse(printed.error(), agent::kExitInfrastructure);
}

}  // namespace

int main(int argc, char** argv) {
  cli::open_standard_streams();
  unblock_signals();
  cli::Environment environment = cli::read_environment();
  const std::string exit_code_path = cli::take_exit_code_path(environment);
  auto lookup = [&environment](std::string_view name) -> std::optional<std::string> {
    auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  };
  auto parsed = cli::parse_options({argv + 1, argv + argc}, lookup);
  if (!parsed) return cli::refuse(parsed.error());
  if (auto* asked = std::get_if<cli::Answer>(&*parsed))
    return answer(asked->is_new_secret ? store::Secret::new_text() + "\n" : asked->text);
  auto config = cli::launch_config(std::get<cli::Options>(*parsed), environment,
                                   cli::this_machine(environment));
  if (!config) return cli::refuse(config.error());
  if (config->dry_run) return answer(*config->dry_run);
  const int exit_code = cli::launch(*config);
  if (!exit_code_path.empty()) cli::write_exit_code(exit_code_path, exit_code);
  return exit_code;
}
