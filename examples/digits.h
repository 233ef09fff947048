// SPDX-License-Identifier: BSD-3-Clause
//
// The handwritten digits of 06_train_digits, and the net that learns to read them.
#pragma once

#include <torch/torch.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "worker/checkpoint/formats/crc32c.h"
#include "worker/ddp/error.h"
#include "worker/ddp/process_group.h"

namespace digits {

struct Digits {
  torch::Tensor images;  // [n, 1, 8, 8], 0 to 1
  torch::Tensor labels;  // [n]

  Digits at(const torch::Tensor& rows) const {
    return {images.index_select(0, rows), labels.index_select(0, rows)};
  }
  Digits to(at::Device device) const { return {images.to(device), labels.to(device)}; }
};

inline Digits read_digits(const std::string& path) {
  constexpr std::int64_t kColumns = 65;
  std::ifstream file(path);
  if (!file)
    throw ddprun::ddp::DdpError("cannot read " + path + ": scripts/setup puts it there; or --data");
  std::vector<float> cells;
  for (std::string cell; std::getline(file, cell, ',');) {
    std::istringstream line(cell);  // the last cell of a line comes with the first of the next
    for (float value; line >> value;) cells.push_back(value);
  }
  auto rows = static_cast<std::int64_t>(cells.size()) / kColumns;
  if (rows == 0 || rows * kColumns != static_cast<std::int64_t>(cells.size())) {
    throw ddprun::ddp::DdpError(path + " is not a table of 65 numbers a line");
  }
  torch::Tensor table = torch::tensor(cells).view({rows, kColumns});
  return {(table.slice(1, 0, 64) / 16).view({rows, 1, 8, 8}), table.select(1, 64).to(torch::kLong)};
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("hidden", hidden);
    register_module("output", output);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv1(x));
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return output(torch::relu(hidden(x.flatten(1))));
  }
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 16, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(16, 32, 3).padding(1)};
  torch::nn::Linear hidden{32 * 4 * 4, 64};
  torch::nn::Linear output{64, 10};
};
TORCH_MODULE(Net);

inline Net make_net(std::uint64_t seed, at::Device device) {
  torch::manual_seed(seed);
  Net net;
  net->to(device);
  return net;
}

inline double accuracy(Net& net, const Digits& digits) {
  torch::NoGradGuard no_grad;
  torch::Tensor right = net(digits.images).argmax(1) == digits.labels;
  return right.to(torch::kDouble).mean().item<double>();
}

// Whether all ranks hold the same parameters, bit for bit; rank 0 says so.
inline bool parameters_agree(ddprun::ddp::ProcessGroup& group, Net& net) {
  std::uint32_t sum = 0;
  for (const torch::Tensor& parameter : net->parameters()) {
    torch::Tensor bytes = parameter.detach().cpu().contiguous();
    sum = ddprun::ddp::crc32c(sum, bytes.const_data_ptr(), bytes.nbytes());
  }
  bool agree = true;
  for (const torch::Tensor& other : group.all_gather(torch::tensor(std::int64_t{sum}))) {
    agree = agree && other.item<std::int64_t>() == sum;
  }
  if (group.rank() == 0) {
    std::cout << "parameters " << (agree ? "identical" : "DIFFERENT") << " on "
              << group.world_size() << " ranks: " << std::hex << sum << std::dec << std::endl;
  }
  return agree;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace digits
