// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/step.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "cli/options/parse.h"
#include "cli/slurm/nodelist.h"
#include "store/base/number.h"

namespace ddprun::cli {
namespace {

using Environment = std::map<std::string, std::string, std::less<>>;

// Steps that are none of srun's: the batch script, ssh into the job, salloc's shell.
// (slurm.h: SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT, SLURM_INTERACTIVE_STEP, and what may come.)
constexpr std::uint32_t kFirstReservedStep = 0xfffffff0;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  Result<SlurmPlace> place() {
    std::string job = text("SLURM_JOB_ID");
    if (job.empty()) job = text("SLURM_JOBID");
    if (job.empty()) return SlurmPlace(OutsideSlurm{});
    if (!number_in<std::uint32_t>(job)) return malformed("SLURM_JOB_ID", "a number");
    std::optional<std::uint32_t> step_id = number_in<std::uint32_t>(text("SLURM_STEP_ID"));
    bool is_step = step_id && *step_id < kFirstReservedStep;
    if (!is_step) return batch(job);
    SlurmStep step{.job = job, .step = text("SLURM_STEP_ID")};
    for (auto part : {&Reader::restarts, &Reader::nodes, &Reader::own_place, &Reader::tasks,
                      &Reader::first_address, &Reader::resources}) {
      Result<void> done = (this->*part)(step);
      if (!done) return done.error();
    }
    return SlurmPlace(std::move(step));
  }

 private:
  std::string text(const char* name) const {
    auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }
  Error malformed(const char* name, const std::string& accepted) const {
    return invalid_value({text(name), name},
                         accepted + "; ddprun does not know its place in the step");
  }
  // Of a variable that may be missing; nothing where it is no such number.
  std::optional<int> count(const char* name) const {
    std::optional<std::uint32_t> value = number_in<std::uint32_t>(text(name));
    if (!value || *value == 0 || *value > kMaxNodes) return std::nullopt;
    return static_cast<int>(*value);
  }

  Result<SlurmPlace> batch(std::string job) const {
    std::optional<int> nodes = count("SLURM_JOB_NUM_NODES");
    if (!nodes) nodes = count("SLURM_NNODES");
    SlurmBatch batch{.job = std::move(job),
                     .node_count = nodes.value_or(1),
                     .node_list = text("SLURM_JOB_NODELIST"),
                     .is_on_node = !text("SLURMD_NODENAME").empty()};
    if (auto names = expand_nodelist(batch.node_list)) batch.nodes = std::move(*names);
    std::tie(batch.gpus, batch.gpus_from) = gpus();
    return SlurmPlace(std::move(batch));
  }

  Result<void> restarts(SlurmStep& step) {
    std::string given = text("SLURM_RESTART_COUNT");
    if (given.empty()) return {};
    std::optional<std::uint32_t> value = number_in<std::uint32_t>(given);
    if (!value || *value > 1'000'000) return malformed("SLURM_RESTART_COUNT", "a count");
    step.restart_count = static_cast<int>(*value);
    return {};
  }

  Result<void> nodes(SlurmStep& step) {
    step.node_list = text("SLURM_STEP_NODELIST");
    if (step.node_list.empty()) return malformed("SLURM_STEP_NODELIST", "a list of nodes");
    Result<std::vector<std::string>> names = expand_nodelist(step.node_list);
    if (!names) return Error{Errc::InvalidInput, "SLURM_STEP_NODELIST: " + names.error().context};
    step.nodes = std::move(*names);
    std::string given = text("SLURM_STEP_NUM_NODES");
    if (!given.empty() && number_in<std::uint32_t>(given) != step.nodes.size()) {
      return Error{Errc::InvalidInput,
                   "SLURM_STEP_NUM_NODES='" + given + "', but SLURM_STEP_NODELIST='" +
                       step.node_list + "' names " + std::to_string(step.nodes.size()) + " nodes"};
    }
    return {};
  }

  Result<void> own_place(SlurmStep& step) {
    std::string name = text("SLURMD_NODENAME");
    auto found = std::ranges::find(step.nodes, name);
    if (!name.empty() && found != step.nodes.end()) {
      step.node = static_cast<int>(found - step.nodes.begin());
      step.node_from =
          number_in<std::uint32_t>(text("SLURM_NODEID")) == static_cast<std::uint32_t>(step.node)
              ? "SLURM_NODEID"
              : "SLURMD_NODENAME in SLURM_STEP_NODELIST";
      return {};
    }
    std::optional<std::uint32_t> id = number_in<std::uint32_t>(text("SLURM_NODEID"));
    if (!id || *id >= step.nodes.size()) {
      return malformed("SLURM_NODEID",
                       "a number from 0 to " + std::to_string(step.nodes.size() - 1));
    }
    step.node = static_cast<int>(*id);
    step.node_from = "SLURM_NODEID";
    return {};
  }

  Result<void> tasks(SlurmStep& step) {
    step.tasks_per_node = text("SLURM_STEP_TASKS_PER_NODE");
    if (step.tasks_per_node.empty()) step.tasks_per_node = text("SLURM_TASKS_PER_NODE");
    std::string all = text("SLURM_STEP_NUM_TASKS");
    if (step.tasks_per_node.empty() && all.empty())
      return malformed("SLURM_STEP_TASKS_PER_NODE", "a list like 1(x4)");
    // "1(x4)", "1,1": every piece begins with 1 where there is one task on each node.
    auto is_of_one = [](const std::string& piece) {
      return piece.substr(0, piece.find('(')) == "1";
    };
    const bool is_each_one = step.tasks_per_node.empty() ||
                             std::ranges::all_of(split_commas(step.tasks_per_node), is_of_one);
    const bool are_as_many = all.empty() || number_in<std::uint32_t>(all) == step.nodes.size();
    step.has_task_per_node = is_each_one && are_as_many;
    return {};
  }

  // "ec0:10.0.0.7:host0,ec1:[fd00::8]:host1"; "(null)" where there are none.
  Result<void> first_address(SlurmStep& step) {
    step.first_address = step.nodes.front();
    for (const std::string& entry : split_commas(text("SLURM_NODE_ALIASES"))) {
      if (!entry.starts_with(step.nodes.front() + ":")) continue;
      std::string rest = entry.substr(step.nodes.front().size() + 1);
      bool is_bracketed = rest.starts_with("[");
      std::string address =
          is_bracketed ? rest.substr(1, rest.find(']') - 1) : rest.substr(0, rest.find(':'));
      if (!address.empty()) step.first_address = address;
    }
    return {};
  }

  // How many, and what says so.  What workers will see comes before what Slurm has counted: with
  // --gpus-per-task or a binding it is less.
  std::pair<std::optional<int>, std::string> gpus() const {
    for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
      std::string list = text(name);
      if (list.empty() || list == "NoDevFiles") continue;
      return {static_cast<int>(split_commas(list).size()), name};
    }
    const char* counted = "SLURM_GPUS_ON_NODE";
    std::optional<int> number = count(counted);
    return {number, number ? counted : ""};
  }

  Result<void> resources(SlurmStep& step) {
    step.gpus_on_node = count("SLURM_GPUS_ON_NODE");
    step.cpus_on_node = count("SLURM_CPUS_ON_NODE");
    step.cpus_per_task = count("SLURM_CPUS_PER_TASK");
    std::tie(step.gpus, step.gpus_from) = gpus();
    return {};
  }

  const Environment& environment_;
};

}  // namespace

Result<SlurmPlace> slurm_place(const Environment& environment) {
  return Reader(environment).place();
}

}  // namespace ddprun::cli
