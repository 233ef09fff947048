// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of python_parity_test.py: trains as the script's Python rank does, in one mode after the
// other, and rank 0 writes every gradient to a file named by the mode.
//
//   parity_ranks FOLDER MODE...
#include <torch/torch.h>

#include <fstream>
#include <iostream>
#include <map>

#include "worker/ddp/checkpoint/tensor_file.h"
#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr int kSteps = 6;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("wide", wide);
    register_module("left", left);
    register_module("right", right);
  }
  torch::Tensor forward(torch::Tensor x, bool go_left) {
    x = torch::tanh(wide(norm(torch::relu(first(x)))));
    return go_left ? left(x) : right(x);
  }
  torch::nn::Linear first{6, 5};
  torch::nn::BatchNorm1d norm{5};
  torch::nn::Linear wide{5, 70};
  torch::nn::Linear left{70, 3};
  torch::nn::Linear right{70, 3};
};
TORCH_MODULE(Net);

torch::Tensor wave(std::int64_t count, double phase) {
  return torch::sin(torch::arange(count, torch::kDouble) * 0.7 + phase).to(torch::kFloat);
}

ddp::DataParallelOptions options_of(const std::string& mode) {
  static const std::map<std::string, ddp::DataParallelOptions> kModes = {
      {"plain", {}},
      {"views", {.gradient_as_bucket_view = true}},
      {"buckets", {.bucket_cap_bytes = 64}},
      {"unused", {.find_unused_parameters = true}},
      {"unused_views", {.find_unused_parameters = true, .gradient_as_bucket_view = true}},
      {"static", {.static_graph = true}},
      {"no_sync", {}},
      {"float16", {.compression = ddp::Compression::Float16}},
      {"bfloat16", {.compression = ddp::Compression::BFloat16}},
  };
  return kModes.at(mode);
}

void train(ddp::ProcessGroup group, const std::string& mode, const std::string& file) {
  Net net;
  int index = 0;
  for (torch::Tensor& parameter : net->parameters()) {
    parameter.data().copy_(wave(parameter.numel(), index++).view(parameter.sizes()) * 0.3);
  }
  const bool has_branches = mode.starts_with("unused");
  if (!has_branches) net->right->eval();
  for (torch::Tensor& parameter : net->right->parameters()) parameter.requires_grad_(has_branches);

  ddp::DistributedDataParallel<Net> model(net, group, options_of(mode));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<ddp::NamedTensor> seen;
  for (int step = 0; step < kSteps; ++step) {
    torch::Tensor x = wave(4 * 6, 10 * step + group.rank()).view({4, 6});
    const bool go_left = !has_branches || (step + group.rank()) % 3 != 0;
    const bool is_last_of_two = mode != "no_sync" || step % 2 == 1;
    if (mode != "no_sync" || step % 2 == 0) model.zero_grad();
    auto backward = [&] { model(x, go_left).square().mean().backward(); };
    if (is_last_of_two) {
      backward();
      optimizer.step();
    } else {
      auto guard = model.no_sync();
      backward();
    }
    for (const auto& item : net->named_parameters()) {
      if (!item.value().grad().defined()) continue;
      seen.push_back(
          {"step " + std::to_string(step) + ": " + item.key(), item.value().grad().clone()});
    }
  }
  for (const auto& item : net->named_parameters())
    seen.push_back({"end: " + item.key(), item.value()});
  for (const auto& item : net->named_buffers())
    seen.push_back({"end: " + item.key(), item.value()});
  if (group.rank() == 0) {
    ddp::EncodedTensors encoded =
        ddp::value_or_throw(ddp::encode_tensors(seen, {{"format", "pt"}}));
    std::ofstream out(file, std::ios::binary);
    for (std::string_view piece : encoded.pieces()) out << piece;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    ddp::ProcessGroup group = ddp::init_process_group();
    for (int i = 2; i < argc; ++i) {
      const std::string mode = argv[i];
      train(group, mode, argv[1] + ("/" + mode));
    }
    group.barrier();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
