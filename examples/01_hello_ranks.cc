// SPDX-License-Identifier: BSD-3-Clause
//
// The smallest program with several ranks: each says who it is, and together they add up.
//
//   ddprun --standalone --nproc-per-node 2 build/release/bin/hello_ranks
//
// Prints a line for each rank, in any order, and then, from rank 0, "the ranks add up to 1".
#include <ATen/ATen.h>

#include <cstdio>
#include <iostream>

#include "worker/ddp/process_group.h"

int main() {
  try {
    ddprun::ddp::ProcessGroup group = ddprun::ddp::init_process_group();
    const ddprun::worker::WorkerEnv& env = group.env();
    std::printf("rank %d of %d, local rank %d of %d, node %d of %d, restart %d\n", env.rank,
                env.world_size, env.local_rank, env.local_world_size, env.group_rank,
                env.group_world_size, env.restart_count);
    std::fflush(stdout);

    at::Tensor sum = at::scalar_tensor(group.rank(), at::kLong);
    group.all_reduce(sum);
    group.barrier();
    if (group.rank() == 0) {
      std::printf("the ranks add up to %lld\n", static_cast<long long>(sum.item<std::int64_t>()));
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "hello_ranks: " << error.what() << std::endl;
    return 1;
  }
}
