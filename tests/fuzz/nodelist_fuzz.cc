// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes as one node list, and line by line as the variables of a step.  scripts/fuzz
// builds and runs it.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "cli/slurm/nodelist.h"
#include "cli/slurm/step.h"
#include "store/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddprun;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto names = cli::expand_nodelist(text)) {
    check(!names->empty() && names->size() <= cli::kMaxNodes, "a list has some names");
    for (const std::string& name : *names)
      check(name.find_first_of("[],") == std::string::npos, "a name has no brackets");
  }
  std::map<std::string, std::string, std::less<>> environment;
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES",
        "SLURMD_NODENAME", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS",
        "CUDA_VISIBLE_DEVICES", "SLURM_NODE_ALIASES", "SLURM_RESTART_COUNT"}) {
    std::size_t end = text.find('\n');
    environment[name] = std::string(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  if (auto place = cli::slurm_place(environment)) {
    if (auto* step = std::get_if<cli::SlurmStep>(&*place)) {
      check(step->node >= 0 && static_cast<std::size_t>(step->node) < step->nodes.size(),
            "a node is one of the step's");
    }
  }
  return 0;
}
