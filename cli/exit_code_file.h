// SPDX-License-Identifier: BSD-3-Clause
//
// The exit code of this agent, for the batch script on its node: srun's is the highest of all
// nodes, also of one that was lost while the run went on.
#pragma once

#include <string>

#include "cli/machine.h"

namespace ddprun::cli {

// The file of this node in the folder that DDPRUN_EXIT_CODE_FOLDER names; empty where none is
// named, or Slurm has not named the node.  Takes the variable out of `environment`: an agent that a
// worker starts has another exit code.
std::string take_exit_code_path(Environment& environment);

// Writes the code and a line end.  Nothing is said where that is not possible: on other nodes there
// is no such folder.
void write_exit_code(const std::string& path, int exit_code);

}  // namespace ddprun::cli
