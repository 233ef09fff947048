// SPDX-License-Identifier: BSD-3-Clause
//
// A model in two parts on two devices, replicated over the ranks: model parallelism inside a rank,
// data parallelism between them.  The Python twin is python/model_parallel_ddp.py.
//
//   ddprun --standalone --nproc-per-node 2 build/release/bin/model_parallel_ddp
//
// The two devices are GPUs of the worker's own where there are two for each, and else both the CPU;
// the module does not know it.  Rank 0 prints the mean loss of each step over all ranks.
#include <torch/torch.h>

#include <cstdio>
#include <iostream>

#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr int kSteps = 10;

// The first half on one device, the second on another; the activations travel between.
struct SplitModelImpl : torch::nn::Module {
  SplitModelImpl(torch::Device first_device, torch::Device second_device)
      : first(first_device), second(second_device) {
    register_module("net1", net1)->to(first);
    register_module("net2", net2)->to(second);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(net1(x.to(first)));
    return net2(x.to(second));
  }
  torch::Device first;
  torch::Device second;
  torch::nn::Linear net1{10, 30};
  torch::nn::Linear net2{30, 5};
};
TORCH_MODULE(SplitModel);

void train() {
  const std::vector<at::Device> gpus = ddp::gpus_of_worker(2);
  ddp::ProcessGroupOptions options;
  if (!gpus.empty()) options = {.backend = "nccl", .devices = gpus};
  ddp::ProcessGroup group = ddp::init_process_group(options);
  torch::manual_seed(0);
  ddp::DistributedDataParallel<SplitModel> model(
      SplitModel(group.device(), gpus.empty() ? group.device() : gpus[1]), group);
  torch::optim::SGD optimizer(model.parameters(), 0.1);

  torch::manual_seed(static_cast<std::uint64_t>(1000 + group.rank()));
  torch::Tensor inputs = torch::randn({20, 10});
  torch::Tensor targets = torch::randn({20, 5});
  for (int step = 1; step <= kSteps; ++step) {
    optimizer.zero_grad();
    torch::Tensor output = model(inputs);
    torch::Tensor loss = torch::mse_loss(output, targets.to(output.device()));
    loss.backward();
    optimizer.step();

    torch::Tensor mean_loss = loss.detach().cpu().clone();
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
    std::cerr << "model_parallel_ddp: " << error.what() << std::endl;
    return 1;
  }
}
