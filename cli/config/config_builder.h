// SPDX-License-Identifier: BSD-3-Clause
//
// A LaunchConfig under construction, and what it is made from.  cli/config/launch_config passes it
// from topic to topic (cli/config/command, cli/config/log_options, ...).  Each topic fills its own
// part and returns its first failure.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "cli/config/launch_config.h"
#include "cli/options/options.h"
#include "cli/slurm/defaults.h"
#include "store/base/error.h"

namespace ddprun::cli {

struct ConfigBuilder {
  const Options& options;
  const Machine& machine;
  LaunchConfig config{.master = {.host = "127.0.0.1", .port = 0}};
  SlurmDefaults slurm{};              // what came from Slurm; `options` has it already
  std::pair<int, int> nnodes{1, 1};   // the least and the most
  std::string threads_from{};         // what decided OMP_NUM_THREADS
  bool is_preflight_failure = false;  // what the last failure was
  std::string why_cold{};             // why the program cannot have warm restarts; empty: it can

  agent::WorkerGroupConfig& workers() { return config.agent.workers; }

  // nullptr where the user did not give the option.
  const OptionValue* given(std::string_view name) const {
    auto found = options.values.find(name);
    return found == options.values.end() ? nullptr : &found->second;
  }
  std::string text_of(std::string_view name, std::string fallback) const {
    const OptionValue* value = given(name);
    return value != nullptr ? value->text : std::move(fallback);
  }

  // A variable of ddprun's own environment, which the workers inherit; empty where it is not set.
  std::string inherited(std::string_view name) const {
    auto found = config.agent.workers.environment.find(name);
    return found == config.agent.workers.environment.end() ? "" : found->second;
  }

  // Slurm's configuration, where it can be read: where SLURM_CONF says, where Debian and others
  // have it, or, at sites that hand it out, in slurmd's own folder.
  struct SlurmConf {
    std::string folder{};
    std::optional<std::string> text{};
  };
  SlurmConf slurm_conf() const {
    SlurmConf conf;
    for (const std::string& path : {inherited("SLURM_CONF"), std::string("/etc/slurm/slurm.conf"),
                                    std::string("/run/slurm/conf/slurm.conf")}) {
      if (conf.text || path.empty()) continue;
      conf = {.folder = path.substr(0, path.rfind('/')), .text = machine.file_text(path)};
    }
    return conf;
  }

  // Makes the error of a preflight failure: this machine is the cause, not the command line.
  Error preflight_failure(std::string text) {
    is_preflight_failure = true;
    config.preflight_failure = text;
    return {Errc::InvalidInput, std::move(text)};
  }

  // One line that the user should know.
  void note(std::string text) { config.notes.push_back(std::move(text)); }
};

inline Error invalid(std::string text) {
  return {Errc::InvalidInput, std::move(text)};
}
inline Error not_supported(const std::string& what, const std::string& instead) {
  return {Errc::NotSupported, what + " is not supported" + (instead.empty() ? "" : ": " + instead)};
}

}  // namespace ddprun::cli
