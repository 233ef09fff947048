// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks of different speed.  A collective waits for the slowest, and without more said for half an
// hour; a time-out of the program's own and a barrier before work that one rank does alone turn a
// lost rank into a sentence that names it.
//
//   ddprun --standalone --nproc-per-node 2 --max-restarts 0 build/release/bin/skewed_ranks 0.5
//   ddprun --standalone --nproc-per-node 2 --max-restarts 0 build/release/bin/skewed_ranks 5
//
// The last rank is late by the seconds given.  The first command ends well: 0.5 s is less than the
// time-out of 2 s.  In the second, rank 0 says "barrier: rank 1 of 2 did not come within 2 s".
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "worker/ddp/process_group.h"

namespace ddp = ddprun::ddp;
using namespace std::chrono_literals;

int main(int argc, char** argv) {
  const double late_s = argc > 1 ? std::atof(argv[1]) : 0;
  try {
    ddp::ProcessGroup group = ddp::init_process_group({.timeout = 2s});

    const bool is_slow = group.rank() == group.world_size() - 1;
    if (is_slow) std::this_thread::sleep_for(std::chrono::duration<double>(late_s));
    group.barrier();

    // Something that rank 0 does alone would stand here; the others wait for it in the next line.
    group.barrier();
    if (group.rank() == 0) std::printf("all %d ranks came in time\n", group.world_size());
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "skewed_ranks: " << error.what() << std::endl;
    return 1;
  }
}
