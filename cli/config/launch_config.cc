// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/launch_config.h"

#include <limits>

#include "cli/config/command.h"
#include "cli/config/config_builder.h"
#include "cli/config/dry_run.h"
#include "cli/config/failure_options.h"
#include "cli/config/log_options.h"
#include "cli/config/placement_options.h"
#include "cli/config/rendezvous_options.h"
#include "cli/options/parse.h"
#include "cli/slurm/scheduler.h"
#include "cli/slurm/signals.h"
#include "rendezvous/decide/messages.h"
#include "store/base/number.h"

namespace ddprun::cli {
namespace {

constexpr int kAny = std::numeric_limits<int>::max();

Result<void> refuse_what_is_missing(ConfigBuilder& builder) {
  const OptionValue* specs = builder.given("logs-specs");
  if (specs == nullptr || specs->text == "default") return {};
  return invalid_value(*specs,
                       "default: any other names a class in a Python package, and "
                       "ddprun runs no Python of its own");
}

Result<void> accept_what_has_no_effect(ConfigBuilder& builder) {
  if (const OptionValue* interval = builder.given("monitor-interval")) {
    Result<double> seconds = parse_seconds(*interval);
    if (!seconds) return seconds.error();
  }
  std::string method = builder.text_of("start-method", "spawn");
  if (method != "spawn" && method != "fork" && method != "forkserver") {
    return invalid_value(*builder.given("start-method"), "spawn, fork or forkserver");
  }
  return {};
}

Result<int> local_world_size(ConfigBuilder& builder) {
  const OptionValue* value = builder.given("nproc-per-node");
  if (value == nullptr) return 1;
  if (value->text == "cpu") return builder.machine.cpu_count();
  if (value->text == "gpu" || value->text == "auto") {
    int gpus = builder.machine.gpu_count();
    if (gpus > 0) return gpus;
    if (value->text == "auto") return builder.machine.cpu_count();
    return builder.preflight_failure(
        value->origin +
        "=gpu: no GPU is visible on this machine; give a number, or 'cpu' or 'auto'");
  }
  if (value->text == "xpu") {
    return invalid_value(*value, "supported: Intel's GPUs are not counted; give their number");
  }
  Result<int> count = parse_whole(*value, 1, rendezvous::kMaxLocalWorkers);
  if (!count) {
    return invalid_value(*value, "a number of workers from 1 to " +
                                     std::to_string(rendezvous::kMaxLocalWorkers) +
                                     ", or auto, gpu or cpu");
  }
  return *count;
}

Result<void> add_nodes_and_workers(ConfigBuilder& builder) {
  const OptionValue* given = builder.given("nnodes");
  Result<std::pair<int, int>> nnodes =
      parse_nnodes(given != nullptr ? *given : OptionValue{"1:1", "--nnodes"});
  if (!nnodes) return nnodes.error();
  if (builder.given("standalone") != nullptr && nnodes->first == 1 && nnodes->second > 1) {
    builder.note(given->origin + "=" + given->text +
                 ": no other node finds a --standalone run, so it begins with this one");
    nnodes->second = 1;
  }
  builder.nnodes = *nnodes;
  const OptionValue* node_rank = builder.given("node-rank");
  if (node_rank != nullptr && nnodes->second == 1) {
    Result<int> rank = parse_whole(*node_rank, 0, kAny);
    if (!rank) return rank.error();
    if (*rank != 0)
      builder.note(node_rank->origin + "=" + node_rank->text +
                   " has no effect: this is a run of one node (--nnodes)");
  }
  Result<int> count = local_world_size(builder);
  if (!count) return count.error();
  builder.config.agent.core.local_world_size = *count;
  builder.workers().local_world_size = *count;
  builder.workers().role = builder.text_of("role", "default");
  builder.config.self = {.local_world_size = *count, .role = builder.workers().role};
  return {};
}

agent::SignalReach reach_of_slurm(const ConfigBuilder& builder) {
  ConfigBuilder::SlurmConf conf = builder.slurm_conf();
  return signal_reach(conf.text, builder.machine.file_text(conf.folder + "/cgroup.conf"));
}

// A run id that the user gave stays the same when the job is requeued.
void add_scheduler(ConfigBuilder& builder) {
  auto variable = [&builder](std::string_view name) { return builder.inherited(name); };
  std::optional<SlurmJob> job = slurm_job(variable);
  std::optional<agent::SignalReach> reach;
  if (!builder.inherited("SLURM_STEP_ID").empty()) reach = reach_of_slurm(builder);
  agent::AgentConfig& agent = builder.config.agent;
  agent.scheduler = slurm_scheduler(job, reach);
  agent.shares_output = number_in<int>(builder.inherited("SLURM_STEP_NUM_NODES")).value_or(1) > 1;
  agent.core.is_sigterm_repeated = agent.scheduler && agent.scheduler->repeats_sigterm;
  agent::WorkerGroupConfig& workers = builder.workers();
  workers.job_id = builder.slurm.job_id.empty() ? workers.run_id : builder.slurm.job_id;
  if (job) workers.requeue_count = job->restart_count;
}

// torchrun's 1, where there are several workers; the CPUs that Slurm gives them, if it does.
void add_threads(ConfigBuilder& builder) {
  auto& variables = builder.workers().environment;
  int count = builder.workers().local_world_size;
  if (builder.slurm.share) {
    std::string warning = cpu_warning(*builder.slurm.share, builder.machine.cpu_count(), count);
    if (!warning.empty()) builder.config.warnings.push_back(std::move(warning));
  }
  if (variables.contains("OMP_NUM_THREADS")) {
    builder.threads_from = "inherited";
  } else if (builder.slurm.share) {
    variables["OMP_NUM_THREADS"] =
        std::to_string(threads_of_worker(*builder.slurm.share, builder.machine.cpu_count(), count));
    builder.threads_from = "sched_getaffinity, SLURM_CPUS_ON_NODE";
  } else if (count > 1) {
    builder.note(
        "OMP_NUM_THREADS is set to 1 for each worker; set it yourself where more threads pay "
        "off");
  }
}

void add_log_level(ConfigBuilder& builder) {
  std::string level = builder.inherited("LOGLEVEL");
  const std::map<std::string, std::string, std::less<>> levels = {
      {"", "info"},        {"DEBUG", "debug"}, {"INFO", "info"},         {"WARNING", "warning"},
      {"WARN", "warning"}, {"ERROR", "error"}, {"CRITICAL", "critical"}, {"FATAL", "critical"}};
  auto found = levels.find(level);
  if (found == levels.end()) {
    builder.note("LOGLEVEL='" + level +
                 "' is not DEBUG, INFO, WARNING, ERROR or CRITICAL; INFO is used");
  } else {
    builder.config.log_level = found->second;
  }
}

Result<void> add_environment(ConfigBuilder& builder) {
  add_scheduler(builder);
  // Ours, when another launcher runs us as its worker; each of our workers gets one of its own.
  builder.config.agent.error_file = builder.inherited("TORCHELASTIC_ERROR_FILE");
  add_threads(builder);
  add_log_level(builder);
  return {};
}

}  // namespace

Result<LaunchConfig> launch_config(const Options& options,
                                   std::map<std::string, std::string, std::less<>> environment,
                                   const Machine& machine) {
  Result<SlurmDefaults> slurm = slurm_defaults(options, environment, machine.hostname());
  if (!slurm) return slurm.error();
  ConfigBuilder builder{.options = slurm->options, .machine = machine, .slurm = *slurm};
  builder.workers().environment = std::move(environment);
  builder.config.notes = slurm->notes;
  bool is_dry_run = builder.given("dry-run") != nullptr;
  for (auto part :
       {refuse_what_is_missing, accept_what_has_no_effect, add_nodes_and_workers, add_command,
        add_placement, add_failures, add_rendezvous, add_logs, add_environment}) {
    builder.is_preflight_failure = false;
    Result<void> done = part(builder);
    if (done) continue;
    // The other nodes would wait for this one, so it has to know where they are.
    bool others_wait = builder.nnodes.second > 1 && !is_dry_run;
    if (!builder.is_preflight_failure || !others_wait) return done.error();
  }
  if (is_dry_run) builder.config.dry_run = dry_run_text(builder);
  return std::move(builder.config);
}

}  // namespace ddprun::cli
