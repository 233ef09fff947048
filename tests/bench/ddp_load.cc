// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of scripts/bench/ddp, which has the same models for Python's DDP.  Rank 0 writes one
// figure.
//
//   ddp_load train mlp|conv|transformer WARM STEPS   the seconds that STEPS took after WARM others,
//                                                    and what the monotonic clock says after them
//   ddp_load all_reduce BYTES COUNT                  the median of COUNT, in microseconds
//   ddp_load memcpy BYTES COUNT                      the same of a copy, in a program of one rank
#include <torch/torch.h>

#include <chrono>
#include <cstring>
#include <iostream>

#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;
namespace nn = torch::nn;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct MlpImpl : nn::Module {
  MlpImpl() { register_module("layers", layers); }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  nn::Sequential layers{nn::Linear(784, 1024), nn::ReLU(), nn::Linear(1024, 1024), nn::ReLU(),
                        nn::Linear(1024, 10)};
};
TORCH_MODULE(Mlp);

nn::Conv2d convolution(int in, int out, int width, int stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, width).stride(stride).padding(width / 2).bias(false));
}

struct BlockImpl : nn::Module {
  BlockImpl(int in, int out)
      : body(convolution(in, out, 3, out / in), nn::BatchNorm2d(out), nn::ReLU(),
             convolution(out, out, 3, 1), nn::BatchNorm2d(out)) {
    register_module("body", body);
    if (in == out) return;
    shortcut = nn::Sequential(convolution(in, out, 1, out / in), nn::BatchNorm2d(out));
    register_module("shortcut", shortcut);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::relu(body->forward(x) + (shortcut.is_empty() ? x : shortcut->forward(x)));
  }
  nn::Sequential body;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

// A small ResNet: 0.18 million parameters, 47 tensors, 45 buffers.
struct ConvImpl : nn::Module {
  ConvImpl()
      : layers(convolution(3, 16, 3, 1), nn::BatchNorm2d(16), nn::ReLU(), Block(16, 16),
               Block(16, 16), Block(16, 32), Block(32, 32), Block(32, 64), Block(64, 64),
               nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(64, 10)) {
    register_module("layers", layers);
  }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  nn::Sequential layers;
};
TORCH_MODULE(Conv);

// Of characters: 10.8 million parameters, 78 tensors.
struct TransformerImpl : nn::Module {
  TransformerImpl() {
    register_module("embedding", embedding);
    register_module("encoder", encoder);
    register_module("norm", norm);
    register_module("head", head);
    position = register_parameter("position", torch::zeros({64, 1, 384}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(norm(encoder(embedding(x) + position))).flatten(0, 1);
  }
  nn::Embedding embedding{128, 384};
  torch::Tensor position;
  nn::TransformerEncoder encoder{nn::TransformerEncoderOptions(
      nn::TransformerEncoderLayerOptions(384, 6).dim_feedforward(1536).dropout(0.0), 6)};
  nn::LayerNorm norm{nn::LayerNormOptions({384})};
  nn::Linear head{384, 128};
};
TORCH_MODULE(Transformer);

template <class Net>
double train(const ddp::ProcessGroup& group, Net net, const torch::Tensor& x,
             const torch::Tensor& y, int warm, int steps) {
  ddp::DistributedDataParallel<Net> model(net, group, {.gradient_as_bucket_view = true});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  Clock::time_point begin;
  for (int step = 0; step < warm + steps; ++step) {
    if (step == warm) begin = Clock::now();
    model.zero_grad();
    torch::nn::functional::cross_entropy(model(x), y).backward();
    optimizer.step();
  }
  return seconds_since(begin);
}

double train(const ddp::ProcessGroup& group, const std::string& name, int warm, int steps) {
  auto labels = [](std::int64_t classes, std::int64_t count) {
    return torch::randint(classes, {count}, torch::kLong);
  };
  if (name == "mlp") {
    return train(group, Mlp(), torch::randn({64, 784}), labels(10, 64), warm, steps);
  }
  if (name == "conv") {
    return train(group, Conv(), torch::randn({16, 3, 32, 32}), labels(10, 16), warm, steps);
  }
  if (name == "transformer") {
    torch::Tensor text = torch::randint(128, {64, 4}, torch::kLong);
    return train(group, Transformer(), text, labels(128, 64 * 4), warm, steps);
  }
  throw std::invalid_argument("there is no model '" + name + "'");
}

template <class Action>
double median_microseconds(int count, Action action) {
  std::vector<double> times;
  for (int i = 0; i < count + count / 10 + 1; ++i) {
    const auto begin = Clock::now();
    action();
    if (i > count / 10) times.push_back(1e6 * seconds_since(begin));
  }
  std::nth_element(times.begin(), times.begin() + count / 2, times.end());
  return times[static_cast<std::size_t>(count / 2)];
}

double all_reduce(const ddp::ProcessGroup& group, std::int64_t bytes, int count) {
  std::vector<torch::Tensor> tensors{torch::ones({bytes / 4})};
  return median_microseconds(count, [&] { group.c10d()->allreduce(tensors)->wait(); });
}

double copy(std::int64_t bytes, int count) {
  std::vector<char> from(static_cast<std::size_t>(bytes), 1);
  std::vector<char> to(from.size(), 2);
  return median_microseconds(count, [&] {
    std::memcpy(to.data(), from.data(), from.size());
    asm volatile("" : : "r"(to.data()) : "memory");
  });
}

int run(const std::vector<std::string>& arguments) {
  auto number = [&](std::size_t at) { return std::stoi(arguments.at(at)); };
  if (arguments.at(0) == "memcpy") {
    std::cout << copy(number(1), number(2)) << std::endl;
    return 0;
  }
  std::cout.precision(12);
  ddp::ProcessGroup group = ddp::init_process_group();
  const double figure = arguments.at(0) == "train"
                            ? train(group, arguments.at(1), number(2), number(3))
                            : all_reduce(group, number(1), number(2));
  const double end = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  if (group.rank() == 0) std::cout << figure << ' ' << end << std::endl;
  group.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "ddp_load: " << error.what() << std::endl;
    return 1;
  }
}
