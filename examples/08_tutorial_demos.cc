// SPDX-License-Identifier: BSD-3-Clause
//
// The three demos of PyTorch's tutorial "Getting Started with Distributed Data Parallel":
// demo_basic, demo_checkpoint and demo_model_parallel.  worker/ddp/TUTORIAL.md has the tutorial's
// lines beside their twins.
//
//   ddprun --standalone --nproc-per-node 2 build/release/bin/tutorial_demos
//   ddprun --standalone --nproc-per-node 2 build/release/bin/tutorial_demos checkpoint
//
// Without a name all three run, on GPUs where each worker of a node has one (for the last, two),
// else on the CPU.  Each rank says which it runs, and that it has loaded what rank 0 has saved.
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "worker/ddp/data_parallel.h"
#include "worker/ddp/tensor_file.h"

namespace {

namespace ddp = ddprun::ddp;

struct ToyModelImpl : torch::nn::Module {
  ToyModelImpl() {
    register_module("net1", net1);
    register_module("net2", net2);
  }
  torch::Tensor forward(torch::Tensor x) { return net2(relu(net1(x))); }

  torch::nn::Linear net1{10, 10};
  torch::nn::ReLU relu;
  torch::nn::Linear net2{10, 5};
};
TORCH_MODULE(ToyModel);

// One half on each of two devices, between which the activations travel.
struct ToyMpModelImpl : torch::nn::Module {
  ToyMpModelImpl(torch::Device first, torch::Device second) : dev0(first), dev1(second) {
    register_module("net1", net1)->to(dev0);
    register_module("net2", net2)->to(dev1);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = relu(net1(x.to(dev0)));
    return net2(x.to(dev1));
  }

  torch::Device dev0, dev1;
  torch::nn::Linear net1{10, 10};
  torch::nn::ReLU relu;
  torch::nn::Linear net2{10, 5};
};
TORCH_MODULE(ToyMpModel);

// `count` devices of this worker's own: GPUs, or the CPU so often.
std::vector<torch::Device> own_devices(int count) {
  std::vector<torch::Device> devices = ddp::gpus_of_worker(count);
  devices.resize(static_cast<std::size_t>(count), torch::kCPU);
  return devices;
}

ddp::ProcessGroup setup(const std::string& demo, const std::vector<torch::Device>& devices) {
  ddp::ProcessGroupOptions options;
  if (devices[0].is_cuda()) options = {.backend = "nccl", .devices = devices};
  ddp::ProcessGroup group = ddp::init_process_group(options);
  std::cout << "Running " << demo << " example on rank " << group.rank() << "." << std::endl;
  return group;
}

template <class Model>
void train_one_step(ddp::DDP<Model>& ddp_model) {
  torch::nn::MSELoss loss_fn;
  torch::optim::SGD optimizer(ddp_model.parameters(), 0.001);
  optimizer.zero_grad();
  torch::Tensor outputs = ddp_model(torch::randn({20, 10}));
  torch::Tensor labels = torch::randn({20, 5}).to(outputs.device());
  loss_fn(outputs, labels).backward();
  optimizer.step();
}

void demo_basic() {
  ddp::ProcessGroup group = setup("basic DDP", own_devices(1));
  ToyModel model;
  model->to(group.device());
  ddp::DDP<ToyModel> ddp_model(model, group, {.device_ids = {group.device()}});
  train_one_step(ddp_model);
  group.barrier();  // over Gloo no rank leaves while another one still sends
}

void demo_checkpoint() {
  ddp::ProcessGroup group = setup("DDP checkpoint", own_devices(1));
  ToyModel model;
  model->to(group.device());
  ddp::DDP<ToyModel> ddp_model(model, group, {.device_ids = {group.device()}});

  // Rank 0's name for all, so that two runs do not share a file.
  const std::filesystem::path path = group.broadcast_text(std::filesystem::temp_directory_path() /
                                                          ("model." + std::to_string(::getpid())));
  if (group.rank() == 0) {
    ddp::save_tensors(path, ddp::model_tensors(ddp_model), ddp::TensorFormat::Pt);
  }
  group.barrier();  // the file is there when rank 0 has come here
  const torch::Tensor before = model->net1->weight.detach().clone();
  torch::nn::init::zeros_(model->net1->weight);
  ddp::load_model(ddp_model, path);  // to where the module is, whatever device it was saved from
  if (!torch::equal(model->net1->weight, before)) throw ddp::DdpError("other values were loaded");
  std::cout << "rank " << group.rank() << " has loaded what rank 0 has saved" << std::endl;

  train_one_step(ddp_model);
  group.barrier();
  if (group.rank() == 0) std::filesystem::remove(path);
}

void demo_model_parallel() {
  const std::vector<torch::Device> devices = own_devices(2);
  ddp::ProcessGroup group = setup("DDP with model parallel", devices);
  ddp::DDP<ToyMpModel> ddp_mp_model(ToyMpModel(devices[0], devices[1]), group);
  train_one_step(ddp_mp_model);  // the outputs are on the second device
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "all";
  const std::map<std::string, std::vector<void (*)()>> demos{
      {"basic", {demo_basic}},
      {"checkpoint", {demo_checkpoint}},
      {"model_parallel", {demo_model_parallel}},
      {"all", {demo_basic, demo_checkpoint, demo_model_parallel}}};
  if (!demos.contains(wanted)) {
    std::cerr << "usage: tutorial_demos [basic|checkpoint|model_parallel]" << std::endl;
    return 2;
  }
  try {
    for (auto demo : demos.at(wanted)) demo();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "tutorial_demos: " << error.what() << std::endl;
    return 1;
  }
}
