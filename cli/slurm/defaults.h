// SPDX-License-Identifier: BSD-3-Clause
//
// What follows from having been started by `srun ddprun train.py`: the options that the user did
// not give, taken from the step.  An option that was given always wins; one that cannot be true in
// this step is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/options.h"
#include "cli/slurm/step.h"
#include "store/base/error.h"

namespace ddprun::cli {

// The rendezvous of a step if the user named no other: on its first node.
struct SlurmRendezvous {
  // In the order to try them.  Steps that run at the same time seldom share any, and all lie below
  // Linux's default range for outgoing connections (32768..60999) and torchrun's own ports.
  std::vector<std::uint16_t> ports;
  bool is_host = false;   // this is the first node
  bool is_spare = false;  // one beyond the most that take part
  // How many nodes the step has, where the run id is its own; else 0.
  std::size_t expected_nodes = 0;
};

// What a job may use of this node.
struct SlurmShare {
  std::optional<int> cpus;           // SLURM_CPUS_ON_NODE
  std::optional<int> cpus_per_task;  // SLURM_CPUS_PER_TASK
};

struct SlurmDefaults {
  Options options;  // with the step's values for what was not given; their origin is a variable
  std::optional<SlurmRendezvous> rendezvous;
  std::optional<SlurmShare> share;  // in a step with one task on each node, whatever was given
  std::string node_name;            // what Slurm calls this node; empty outside
  // This node's place in a step with one task on each node, whatever was given; 0 elsewhere.
  int node_of_step = 0;
  // The run id without the job's restart count, where the id is ours; else empty.
  std::string job_id;
  std::vector<std::string> notes;
};

// No option is taken from Slurm outside a step, under --standalone, with at most one node in
// --nnodes, and where the user gave both --nnodes and an endpoint.  Fails with
// Errc::InvalidInput and a line that says how to run it.  `hostname`: of this machine.
Result<SlurmDefaults> slurm_defaults(
    Options options, const std::map<std::string, std::string, std::less<>>& environment,
    const std::string& hostname);

// OMP_NUM_THREADS of each of `workers` workers: their part of the CPUs that both the kernel and
// Slurm allow.
int threads_of_worker(const SlurmShare& share, int allowed_cpus, int workers);

// A sentence where the workers have to share fewer CPUs than they should; else empty.
std::string cpu_warning(const SlurmShare& share, int allowed_cpus, int workers);

}  // namespace ddprun::cli
