// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/defaults.h"

#include <algorithm>

#include "cli/options/parse.h"
#include "store/base/count.h"
#include "store/base/number.h"

namespace ddprun::cli {
namespace {

// 1170 blocks of 8 ports, 20000..29359.  Jobs have blocks in turn; the steps of a job begin at
// different places in the block of theirs.
constexpr unsigned kFirstPort = 20000;
constexpr unsigned kBlocks = 1170;
constexpr unsigned kPortsInBlock = 8;

constexpr const char* kRunOnce = "srun --ntasks-per-node=1 ddprun ...";

class DefaultsBuilder {
 public:
  DefaultsBuilder(Options options, const std::string& hostname)
      : given_(std::move(options)), hostname_(hostname) {
    defaults_.options = given_;
  }

  Result<SlurmDefaults> build(const std::map<std::string, std::string, std::less<>>& environment) {
    Result<SlurmPlace> place = slurm_place(environment);
    if (place) {
      share(*place);
      compare_gpus(*place);
    }
    if (has("standalone")) return std::move(defaults_);
    if (has("nnodes")) {
      Result<std::pair<int, int>> nnodes = parse_nnodes(given_.values.at("nnodes"));
      if (!nnodes) return nnodes.error();
      nnodes_ = *nnodes;
      if (place) compare_tasks(*place, environment);
      if (nnodes->second == 1) return std::move(defaults_);
    }
    if (says_all()) return std::move(defaults_);
    if (!place) return place.error();
    if (auto* batch = std::get_if<SlurmBatch>(&*place)) return in_batch(*batch);
    if (auto* step = std::get_if<SlurmStep>(&*place)) return in_step(*step);
    return std::move(defaults_);
  }

 private:
  bool has(const char* name) const {
    auto found = given_.values.find(name);
    return found != given_.values.end() && !found->second.text.empty();
  }
  bool has_place() const { return has("rdzv-endpoint") || has("master-addr"); }
  // Who hosts is written down there, not told by the step.
  bool is_in_etcd() const {
    return has("rdzv-backend") && given_.values.at("rdzv-backend").text.starts_with("etcd");
  }
  bool says_all() const { return has("nnodes") && has_place(); }
  void fill(const char* name, std::string text, std::string origin) {
    if (!has(name)) defaults_.options.values[name] = {std::move(text), std::move(origin)};
  }
  static Error refused(std::string text) { return {Errc::InvalidInput, std::move(text)}; }

  void share(const SlurmPlace& place) {
    auto* step = std::get_if<SlurmStep>(&place);
    if (step == nullptr || !step->has_task_per_node) return;
    defaults_.node_of_step = step->node;
    defaults_.share = {.cpus = step->cpus_on_node, .cpus_per_task = step->cpus_per_task};
  }

  // Slurm's count of GPUs is taken in a step only: elsewhere it is torchrun's one worker.
  void compare_gpus(const SlurmPlace& place) {
    auto* batch = std::get_if<SlurmBatch>(&place);
    bool may_be_more = batch != nullptr && !has("nproc-per-node") && batch->gpus.value_or(1) > 1;
    if (!may_be_more || !is_in_job(*batch)) return;
    note("this node has " + count_of(*batch->gpus, "GPU") + " (" + batch->gpus_from +
         "), and ddprun starts 1 worker, since neither srun nor --nproc-per-node is there; " +
         kRunOnce + " starts one for each GPU");
  }

  // salloc leaves its shell on the machine where it was called, which may be none of the job's.
  bool is_in_job(const SlurmBatch& batch) const {
    auto without_domain = [](const std::string& name) { return name.substr(0, name.find('.')); };
    return batch.is_on_node || batch.nodes.empty() ||
           std::ranges::find(batch.nodes, without_domain(hostname_), without_domain) !=
               batch.nodes.end();
  }

  // Where all else is given nothing is refused, as torchrun would not: who starts ddprun more often
  // than there are nodes in the run is told so.
  void compare_tasks(const SlurmPlace& place,
                     const std::map<std::string, std::string, std::less<>>& environment) {
    auto* step = std::get_if<SlurmStep>(&place);
    auto found = environment.find("SLURM_STEP_NUM_TASKS");
    if (step == nullptr || found == environment.end()) return;
    const int tasks = number_in<int>(found->second).value_or(1);
    const OptionValue& nnodes = given_.values.at("nnodes");
    std::string text = "this step starts ddprun " + std::to_string(tasks) + " times (" +
                       found->first + "), and with " + nnodes.origin + "=" + nnodes.text + " ";
    if (nnodes_->second == 1 && tasks > 1) return note(text + "each of them trains alone");
    bool stands_by = !step->has_task_per_node && tasks > nnodes_->second;
    if (stands_by) {
      note(text + std::to_string(tasks - nnodes_->second) +
           " of them will stand by: ddprun starts the workers of a node itself (" + kRunOnce + ")");
    }
  }

  // torchrun, and ddprun elsewhere, would train on this node alone, and each of the others would
  // stand idle until the job's time is over.
  Result<SlurmDefaults> in_batch(const SlurmBatch& batch) {
    if (has("nnodes") || has_place()) return std::move(defaults_);
    if (batch.node_count == 1 && !is_in_job(batch)) {
      return refused("job " + batch.job + " is on " + batch.node_list +
                     ", and ddprun was started on " + hostname_ + ": only srun starts it there (" +
                     kRunOnce + "); --standalone trains on this machine");
    }
    if (batch.node_count == 1) return std::move(defaults_);
    return refused("job " + batch.job + " has " + std::to_string(batch.node_count) +
                   " nodes, and ddprun was started on one of them: only srun starts it on all "
                   "(" +
                   kRunOnce + "); --standalone trains on this node alone");
  }

  Result<SlurmDefaults> in_step(const SlurmStep& step) {
    if (!step.has_task_per_node) return several_tasks(step);
    int node_count = static_cast<int>(step.nodes.size());
    if (nnodes_ && nnodes_->first > node_count && !has_place()) {
      return refused(given_.values.at("nnodes").origin + "=" + given_.values.at("nnodes").text +
                     ": this step has only " + count_of(step.nodes.size(), "node") +
                     " (SLURM_STEP_NODELIST=" + step.node_list +
                     "); others can only come to an --rdzv-endpoint that they know");
    }
    defaults_.node_name = step.nodes[static_cast<std::size_t>(step.node)];
    fill("nnodes", std::to_string(node_count), "SLURM_STEP_NUM_NODES");
    if (!has("rdzv-id")) defaults_.job_id = "slurm-" + step.job + "." + step.step;
    fill("rdzv-id", defaults_.job_id + "-r" + std::to_string(step.restart_count),
         "SLURM_JOB_ID, SLURM_STEP_ID, SLURM_RESTART_COUNT");
    workers(step);
    node_rank(step);
    add_rendezvous(step);
    return std::move(defaults_);
  }

  Result<SlurmDefaults> several_tasks(const SlurmStep& step) const {
    std::string text = "this step does not have one task on each node (SLURM_STEP_TASKS_PER_NODE=" +
                       step.tasks_per_node + " on " + step.node_list +
                       "), and ddprun starts the workers of a node itself: " + kRunOnce;
    if (step.gpus_on_node && *step.gpus_on_node > 1) {
      text += ", which starts one worker for each GPU (--gpus-per-node=" +
              std::to_string(*step.gpus_on_node) + ")";
    }
    return refused(std::move(text));
  }

  void workers(const SlurmStep& step) {
    if (has("nproc-per-node")) return;
    if (!step.gpus) return fill("nproc-per-node", "1", "no GPU was given to this step");
    fill("nproc-per-node", std::to_string(*step.gpus), step.gpus_from);
    if (step.gpus_on_node && *step.gpus_on_node > *step.gpus) {
      note("this task sees " + count_of(*step.gpus, "GPU") + " (" + step.gpus_from + ") of the " +
           std::to_string(*step.gpus_on_node) +
           " that the step has here; --gpus-per-node instead of --gpus-per-task gives it all");
    }
  }

  // Nodes beyond the most that take part are spares and get the rank of the node they replace.
  void node_rank(const SlurmStep& step) {
    if (!has("node-rank")) {
      if (!is_beyond_max(step)) fill("node-rank", std::to_string(step.node), step.node_from);
      return;
    }
    const OptionValue& rank = given_.values.at("node-rank");
    if (rank.text != std::to_string(step.node)) {
      note(rank.origin + "=" + rank.text + ", and this is node " + std::to_string(step.node) +
           " of the step (" + step.node_from +
           "); a $SLURM_... in the batch script itself is the "
           "batch script's");
    }
  }

  bool is_beyond_max(const SlurmStep& step) const {
    return nnodes_ && !has("node-rank") && step.node >= nnodes_->second;
  }

  void add_rendezvous(const SlurmStep& step) {
    bool is_static = has("rdzv-backend") ? given_.values.at("rdzv-backend").text == "static"
                                         : has("master-addr") || has("master-port");
    if (!is_static) fill("rdzv-backend", "c10d", "started by srun");
    if (has_place() || is_in_etcd()) return;
    SlurmRendezvous rendezvous{.is_host = step.node == 0,
                               .is_spare = is_beyond_max(step),
                               .expected_nodes = has("rdzv-id") ? 0 : step.nodes.size()};
    unsigned block =
        kFirstPort + number_in<unsigned>(step.job).value_or(0) % kBlocks * kPortsInBlock;
    for (unsigned k = 0; k < kPortsInBlock; ++k) {
      unsigned port = block + (number_in<unsigned>(step.step).value_or(0) + k) % kPortsInBlock;
      rendezvous.ports.push_back(static_cast<std::uint16_t>(port));
    }
    std::string port = std::to_string(rendezvous.ports.front());
    if (is_static) {
      fill("master-addr", step.first_address, "SLURM_STEP_NODELIST");
      fill("master-port", port, "SLURM_JOB_ID, SLURM_STEP_ID");
      rendezvous.ports.resize(1);  // the workers are told it, too
    } else {
      bool is_ipv6 = step.first_address.find(':') != std::string::npos;
      std::string host = is_ipv6 ? "[" + step.first_address + "]" : step.first_address;
      fill("rdzv-endpoint", host + ":" + port, "SLURM_STEP_NODELIST, SLURM_JOB_ID, SLURM_STEP_ID");
    }
    if (defaults_.options.values.at("nnodes").text != "1")
      defaults_.rendezvous = std::move(rendezvous);
  }

  void note(std::string text) { defaults_.notes.push_back(std::move(text)); }

  Options given_;
  const std::string& hostname_;
  std::optional<std::pair<int, int>> nnodes_;  // as given
  SlurmDefaults defaults_;
};

}  // namespace

Result<SlurmDefaults> slurm_defaults(
    Options options, const std::map<std::string, std::string, std::less<>>& environment,
    const std::string& hostname) {
  return DefaultsBuilder(std::move(options), hostname).build(environment);
}

int threads_of_worker(const SlurmShare& share, int allowed_cpus, int workers) {
  int cpus = std::min(allowed_cpus, share.cpus.value_or(allowed_cpus));
  return std::max(1, cpus / std::max(1, workers));
}

std::string cpu_warning(const SlurmShare& share, int allowed_cpus, int workers) {
  bool is_shared = workers > 1 && allowed_cpus < workers;
  bool is_lost = share.cpus_per_task && allowed_cpus < *share.cpus_per_task;
  if (!is_shared && !is_lost) return "";
  std::string text =
      count_of(workers, "worker") + " of this node may use " +
      (allowed_cpus == 1 ? "1 CPU" : "only " + std::to_string(allowed_cpus) + " CPUs");
  if (is_lost) {
    std::string count = std::to_string(*share.cpus_per_task);
    return text + ", and the job asked for " + count +
           " a task: srun does not take --cpus-per-task over from sbatch; export "
           "SRUN_CPUS_PER_TASK=" +
           count + " or give it to srun";
  }
  return text + ": ask for more, as with srun --cpus-per-task=" + std::to_string(workers);
}

}  // namespace ddprun::cli
