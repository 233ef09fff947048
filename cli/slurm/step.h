// SPDX-License-Identifier: BSD-3-Clause
//
// Where in a Slurm cluster this process was started, read from the variables that Slurm gives to
// every task.  No scontrol, no look-up of names.  What follows for the run is decided in
// cli/slurm/defaults.
//
// Sources: the environment of steps of Slurm 22.05, as seen; srun(1), "OUTPUT ENVIRONMENT
// VARIABLES".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "store/base/error.h"

namespace ddprun::cli {

// Not in a job of Slurm, or on a node that it does not manage.
struct OutsideSlurm {};

// In a job, and not started by srun: the batch script, the shell of salloc, an interactive step.
// Only the variables of the whole job are there, which look like those of a step.
struct SlurmBatch {
  std::string job;
  int node_count = 1;
  std::string node_list;           // SLURM_JOB_NODELIST as it was given
  std::vector<std::string> nodes;  // its names; none where it is malformed
  bool is_on_node = false;         // Slurm has started this process, or its parent, on a node
  std::optional<int> gpus;         // of the job, on this node
  std::string gpus_from;
};

// A task of a step: this is what srun starts.
struct SlurmStep {
  std::string job;                 // SLURM_JOB_ID
  std::string step;                // SLURM_STEP_ID
  int restart_count = 0;           // SLURM_RESTART_COUNT: how often the job was requeued
  std::string node_list;           // SLURM_STEP_NODELIST as it was given
  std::vector<std::string> nodes;  // its names; element k is node k of the step
  // This node's place among them, from 0: by SLURMD_NODENAME, else SLURM_NODEID.  In a step over
  // several parts of a heterogeneous job Slurm counts SLURM_NODEID in another order than it lists
  // the nodes, and not every node would find itself at its number.
  int node = 0;
  std::string node_from;          // the variable that says so
  std::string tasks_per_node;     // "1(x4)", "4(x2)"
  bool has_task_per_node = true;  // exactly one task on each node
  // The address of the first node, if SLURM_NODE_ALIASES has one; else its name.
  std::string first_address;
  std::optional<int> gpus;  // of this task
  std::string gpus_from;
  std::optional<int> gpus_on_node;  // SLURM_GPUS_ON_NODE
  std::optional<int> cpus_on_node;  // SLURM_CPUS_ON_NODE: the job's share of the node
  std::optional<int> cpus_per_task;
};

using SlurmPlace = std::variant<OutsideSlurm, SlurmBatch, SlurmStep>;

// Fails with Errc::InvalidInput and a line that names the variable, where a step's variables are
// missing, malformed or contradict each other.
Result<SlurmPlace> slurm_place(const std::map<std::string, std::string, std::less<>>& environment);

}  // namespace ddprun::cli
