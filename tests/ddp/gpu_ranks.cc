// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of gpu_test.py: trains on its GPU beside a bare copy whose gradients are averaged one by
// one, and says "done" when they have been the same in each step.
#include <torch/torch.h>

#include <iostream>

#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr int kSteps = 5;

torch::nn::Sequential make_net(at::Device device) {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(6, 40), torch::nn::ReLU(), torch::nn::Linear(40, 3));
  net->to(device);
  return net;
}

void train() {
  ddp::ProcessGroup group = ddp::init_process_group({.backend = "nccl"});
  const at::Device device = group.device();
  if (!device.is_cuda() || device.index() != group.local_rank()) {
    throw ddp::DdpError("the device of local rank " + std::to_string(group.local_rank()) + " is " +
                        device.str());
  }
  for (bool views : {false, true}) {
    torch::nn::Sequential net = make_net(device), reference = make_net(device);
    ddp::DistributedDataParallel<torch::nn::Sequential> model(
        net, group, {.gradient_as_bucket_view = views, .bucket_cap_bytes = 256});
    torch::optim::SGD optimizer(net->parameters(), 0.1), other(reference->parameters(), 0.1);
    for (int step = 0; step < kSteps; ++step) {
      torch::Tensor x = torch::full({4, 6}, 0.1 * (group.rank() + 1) + step, device);
      model.zero_grad();
      reference->zero_grad();
      model(x).square().mean().backward();
      reference->forward(x).square().mean().backward();
      for (std::size_t i = 0; i < net->parameters().size(); ++i) {
        torch::Tensor mean = reference->parameters()[i].grad();
        group.all_reduce(mean);
        mean.div_(group.world_size());
        if (!torch::allclose(net->parameters()[i].grad(), mean, 1e-4, 1e-6)) {
          throw ddp::DdpError("the gradients differ in step " + std::to_string(step));
        }
      }
      optimizer.step();
      other.step();
    }
  }
  group.barrier();
  if (group.rank() == 0) std::cout << "done on " << group.world_size() << " GPUs" << std::endl;
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "gpu_ranks: " << error.what() << std::endl;
    return 1;
  }
}
