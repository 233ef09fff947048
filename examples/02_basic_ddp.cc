// SPDX-License-Identifier: BSD-3-Clause
//
// DistributedDataParallel in ten lines: each rank learns from data of its own, and all hold the
// same parameters.  The Python twin, python/basic_ddp.py, prints the same losses.
//
//   ddprun --standalone --nproc-per-node 2 build/release/bin/basic_ddp
//
// Rank 0 prints the mean loss of each step over all ranks.  With DDPRUN_BACKEND=nccl each rank
// trains on its GPU.
#include <torch/torch.h>

#include <cstdio>
#include <iostream>

#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr int kSteps = 10;

struct ToyModelImpl : torch::nn::Module {
  ToyModelImpl() {
    register_module("net1", net1);
    register_module("net2", net2);
  }
  torch::Tensor forward(torch::Tensor x) { return net2(torch::relu(net1(x))); }

  torch::nn::Linear net1{10, 10};
  torch::nn::Linear net2{10, 5};
};
TORCH_MODULE(ToyModel);

void train() {
  ddp::ProcessGroup group = ddp::init_process_group();

  torch::manual_seed(0);
  ToyModel toy;
  toy->to(group.device());
  ddp::DistributedDataParallel<ToyModel> model(toy, group);
  torch::optim::SGD optimizer(model.parameters(), 0.05);

  torch::manual_seed(static_cast<std::uint64_t>(1000 + group.rank()));
  torch::Tensor inputs = torch::randn({20, 10}).to(group.device());
  torch::Tensor targets = torch::randn({20, 5}).to(group.device());
  for (int step = 1; step <= kSteps; ++step) {
    optimizer.zero_grad();
    torch::Tensor loss = torch::mse_loss(model(inputs), targets);
    loss.backward();
    optimizer.step();

    torch::Tensor mean_loss = loss.detach().clone();
    group.all_reduce(mean_loss);
    if (group.rank() == 0) {
      std::printf("step %d: loss %.6f\n", step, mean_loss.item<double>() / group.world_size());
    }
  }
  group.barrier();
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "basic_ddp: " << error.what() << std::endl;
    return 1;
  }
}
