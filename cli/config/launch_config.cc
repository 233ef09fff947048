// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/launch_config.h"

#include <chrono>
#include <limits>

#include "cli/config/command.h"
#include "cli/config/config_builder.h"
#include "cli/config/dry_run.h"
#include "cli/config/failure_options.h"
#include "cli/config/log_options.h"
#include "cli/config/parse.h"
#include "cli/config/placement_options.h"
#include "cli/config/rendezvous_options.h"
#include "cli/slurm/signals.h"

namespace ddprun::cli {
namespace {

constexpr int kAny = std::numeric_limits<int>::max();
constexpr const char* kDefaultSignals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

// Fills a LaunchConfig part by part.  Each part returns its first failure.
class Builder {
 public:
  Builder(const SlurmAdoption& slurm, std::map<std::string, std::string, std::less<>> environment,
          const Machine& machine)
      : draft_{.options = slurm.options, .machine = machine, .slurm = slurm} {
    workers().environment = std::move(environment);
    config_.notes = slurm.notes;
  }

  Result<LaunchConfig> build() {
    using Part = Result<void> (Builder::*)();
    for (Part part :
         {&Builder::refuse_what_is_missing, &Builder::accept_what_has_no_effect,
          &Builder::nodes_and_workers, &Builder::command, &Builder::placement, &Builder::failures,
          &Builder::meeting, &Builder::output, &Builder::environment}) {
      Result<void> done = (this->*part)();
      if (done) continue;
      bool others_wait = nnodes_.second > 1 && given("dry-run") == nullptr;
      bool is_lacking = to_string(done.error()) == config_.preflight_failure;
      if (!is_lacking || !others_wait) return done.error();
    }
    if (given("dry-run") != nullptr) config_.dry_run = dry_run_text(draft_);
    return std::move(config_);
  }

 private:
  agent::WorkerGroupConfig& workers() { return draft_.workers(); }
  const OptionValue* given(const char* name) const { return draft_.given(name); }
  std::string text_of(const char* name, std::string fallback) const {
    return draft_.text_of(name, std::move(fallback));
  }
  std::string inherited(const char* name) const { return draft_.inherited(name); }
  void note(std::string text) { draft_.note(std::move(text)); }

  Result<void> command() { return add_command(draft_); }
  Result<void> placement() { return add_placement(draft_); }
  Result<void> output() { return add_output(draft_); }
  Result<void> meeting() {
    Result<void> met = add_meeting(draft_, nnodes_.first, nnodes_.second);
    if (met && config_.network)
      config_.network->member.node.policy.max_restarts = config_.max_restarts;
    return met;
  }

  Result<void> refuse_what_is_missing() {
    if (const OptionValue* specs = given("logs-specs"); specs && specs->text != "default") {
      return invalid_value(*specs,
                           "default: any other names a class in a Python package, and "
                           "ddprun runs no Python of its own");
    }
    return {};
  }

  Result<void> accept_what_has_no_effect() {
    if (const OptionValue* interval = given("monitor-interval")) {
      Result<double> seconds = parse_seconds(*interval);
      if (!seconds) return seconds.error();
    }
    std::string method = text_of("start-method", "spawn");
    if (method != "spawn" && method != "fork" && method != "forkserver") {
      return invalid_value(*given("start-method"), "spawn, fork or forkserver");
    }
    return {};
  }

  Result<void> nodes_and_workers() {
    Result<std::pair<int, int>> nnodes = parse_nnodes(nodes_value());
    if (!nnodes) return nnodes.error();
    nnodes_ = *nnodes;
    const OptionValue* node_rank = given("node-rank");
    if (node_rank != nullptr && nnodes_.second == 1) {
      Result<int> rank = parse_whole(*node_rank, 0, kAny);
      if (!rank) return rank.error();
      if (*rank != 0)
        return invalid(node_rank->origin + "=" + node_rank->text +
                       ": with one node only 0 is possible");
    }
    Result<int> count = local_world_size();
    if (!count) return count.error();
    config_.agent.core.local_world_size = *count;
    workers().local_world_size = *count;
    workers().role = text_of("role", "default");
    config_.self = {.local_world_size = *count, .role = workers().role};
    return {};
  }

  OptionValue nodes_value() const {
    const OptionValue* value = given("nnodes");
    return value != nullptr ? *value : OptionValue{"1:1", "--nnodes"};
  }

  Result<int> local_world_size() {
    const OptionValue* value = given("nproc-per-node");
    if (value == nullptr) return 1;
    if (value->text == "cpu") return machine_.cpu_count();
    if (value->text == "gpu" || value->text == "auto") {
      int gpus = machine_.gpu_count();
      if (gpus > 0) return gpus;
      if (value->text == "auto") return machine_.cpu_count();
      return draft_.lacks(
          value->origin +
          "=gpu: no GPU is visible on this machine; give a number, or 'cpu' or 'auto'");
    }
    if (value->text == "xpu") {
      return invalid_value(*value, "supported: Intel's GPUs are not counted; give their number");
    }
    Result<int> count = parse_whole(*value, 1, 65536);
    if (!count)
      return invalid_value(*value, "a number of workers from 1 to 65536, or auto, gpu or cpu");
    return *count;
  }

  Result<void> failures() {
    if (const OptionValue* restarts = given("max-restarts")) {
      Result<int> count = parse_whole(*restarts, 0, kAny);
      if (!count) return count.error();
      config_.max_restarts = *count;
    }
    OptionValue grace{inherited("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
                      "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"};
    const OptionValue* wanted = given("shutdown-timeout");
    if (wanted != nullptr) grace = *wanted;
    if (wanted != nullptr || !grace.text.empty()) {
      Result<int> seconds = parse_whole(grace, 0, 1'000'000);
      if (!seconds) return seconds.error();
      config_.agent.core.stop_grace = std::chrono::seconds(*seconds);
    }
    OptionValue signals{kDefaultSignals, "--signals-to-handle"};
    if (const OptionValue* value = given("signals-to-handle")) signals = *value;
    Result<std::vector<int>> numbers = parse_signals(signals);
    if (!numbers) return numbers.error();
    config_.agent.stop_signals = std::move(*numbers);
    workers().environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = signals.text;
    return add_failures(draft_);
  }

  // Slurm's configuration is where SLURM_CONF says, where Debian and others have it, or, at sites
  // that hand it out, in slurmd's own folder.
  void slurm_signals() {
    if (inherited("SLURM_STEP_ID").empty()) return;
    config_.agent.core.is_sigterm_repeated = true;
    std::optional<std::string> text;
    std::string folder;
    for (std::string path : {inherited("SLURM_CONF"), std::string("/etc/slurm/slurm.conf"),
                             std::string("/run/slurm/conf/slurm.conf")}) {
      if (text || path.empty()) continue;
      text = machine_.file_text(path);
      folder = path.substr(0, path.rfind('/'));
    }
    config_.agent.slurm_signals =
        cli::slurm_signals(text, machine_.file_text(folder + "/cgroup.conf"));
  }

  // An id of the user's own is the same in every life of the job.
  void slurm_job() {
    auto variable = [this](std::string_view name) { return draft_.inherited(name); };
    config_.agent.slurm_job = cli::slurm_job(variable);
    workers().run_family =
        draft_.slurm.run_family.empty() ? workers().run_id : draft_.slurm.run_family;
    if (config_.agent.slurm_job) workers().life = config_.agent.slurm_job->restart_count;
  }

  Result<void> environment() {
    slurm_signals();
    slurm_job();
    // Ours, when another launcher runs us as its worker; each of our workers gets one of its own.
    config_.agent.error_file = inherited("TORCHELASTIC_ERROR_FILE");
    threads();
    std::string level = inherited("LOGLEVEL");
    const std::map<std::string, std::string, std::less<>> levels = {
        {"", "info"},        {"DEBUG", "debug"}, {"INFO", "info"},         {"WARNING", "warning"},
        {"WARN", "warning"}, {"ERROR", "error"}, {"CRITICAL", "critical"}, {"FATAL", "critical"}};
    auto found = levels.find(level);
    if (found == levels.end()) {
      note("LOGLEVEL='" + level + "' is not DEBUG, INFO, WARNING, ERROR or CRITICAL; INFO is used");
    } else {
      config_.log_level = found->second;
    }
    return {};
  }

  // torchrun's 1, where there are several workers; the CPUs that Slurm gives them, if it does.
  void threads() {
    auto& variables = workers().environment;
    int count = workers().local_world_size;
    if (draft_.slurm.share) {
      std::string warning = cpu_warning(*draft_.slurm.share, machine_.cpu_count(), count);
      if (!warning.empty()) config_.warnings.push_back(std::move(warning));
    }
    if (variables.contains("OMP_NUM_THREADS")) {
      draft_.threads_from = "inherited";
    } else if (draft_.slurm.share) {
      variables["OMP_NUM_THREADS"] =
          std::to_string(threads_of_worker(*draft_.slurm.share, machine_.cpu_count(), count));
      draft_.threads_from = "sched_getaffinity, SLURM_CPUS_ON_NODE";
    } else if (count > 1) {
      note(
          "OMP_NUM_THREADS is set to 1 for each worker; set it yourself where more threads pay "
          "off");
    }
  }

  Draft draft_;
  std::pair<int, int> nnodes_{1, 1};
  const Machine& machine_ = draft_.machine;
  LaunchConfig& config_ = draft_.config;
};

}  // namespace

Result<LaunchConfig> launch_config(const Options& options,
                                   std::map<std::string, std::string, std::less<>> environment,
                                   const Machine& machine) {
  Result<SlurmAdoption> slurm = adopt_slurm(options, environment);
  if (!slurm) return slurm.error();
  return Builder(*slurm, std::move(environment), machine).build();
}

}  // namespace ddprun::cli
