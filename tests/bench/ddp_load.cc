// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of scripts/bench/ddp, which has the same models, weights and inputs for Python's DDP.
// Rank 0 writes the figures.
//
//   ddp_load train mlp|conv|transformer WARM STEPS   the seconds that STEPS took after WARM others,
//                                                    what the monotonic clock says after them, and
//                                                    the loss of the third step, or the last before
//   ddp_load all_reduce BYTES COUNT                  the median of COUNT, in microseconds
//   ddp_load memcpy BYTES COUNT                      the same of a copy, in a program of one rank
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <cstring>
#include <iostream>
#include <sstream>

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

// Of operations that both languages have; nn::TransformerEncoder computes attention in another way
// than Python's.
struct AttentionLayerImpl : nn::Module {
  AttentionLayerImpl() {
    register_module("attention", attention);
    register_module("joined", joined);
    register_module("first_norm", first_norm);
    register_module("up", up);
    register_module("down", down);
    register_module("last_norm", last_norm);
  }
  torch::Tensor forward(torch::Tensor x) {  // [texts, characters, 384]
    torch::Tensor heads =
        attention(x).view({x.size(0), x.size(1), 3, 6, 64}).permute({2, 0, 3, 1, 4});
    torch::Tensor seen = at::scaled_dot_product_attention(heads[0], heads[1], heads[2]);
    x = first_norm(x + joined(seen.transpose(1, 2).reshape(x.sizes())));
    return last_norm(x + down(torch::relu(up(x))));
  }
  nn::Linear attention{384, 3 * 384}, joined{384, 384}, up{384, 1536}, down{1536, 384};
  nn::LayerNorm first_norm{nn::LayerNormOptions({384})}, last_norm{nn::LayerNormOptions({384})};
};
TORCH_MODULE(AttentionLayer);

// Of characters: 10.8 million parameters, 78 tensors.
struct TransformerImpl : nn::Module {
  TransformerImpl() {
    register_module("embedding", embedding);
    register_module("layers", layers);
    register_module("norm", norm);
    register_module("head", head);
    position = register_parameter("position", torch::zeros({64, 384}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(norm(layers->forward(embedding(x) + position))).flatten(0, 1);
  }
  nn::Embedding embedding{128, 384};
  torch::Tensor position;
  nn::Sequential layers{AttentionLayer(), AttentionLayer(), AttentionLayer(),
                        AttentionLayer(), AttentionLayer(), AttentionLayer()};
  nn::LayerNorm norm{nn::LayerNormOptions({384})};
  nn::Linear head{384, 128};
};
TORCH_MODULE(Transformer);

// Values from -1 to 1 that are the same in both languages.
torch::Tensor values(at::IntArrayRef sizes, double frequency) {
  torch::Tensor numbers = torch::arange(c10::multiply_integers(sizes), torch::kDouble);
  return torch::sin(numbers * numbers * frequency).to(torch::kFloat).view(sizes);
}

torch::Tensor labels(std::int64_t classes, std::int64_t count, int rank) {
  return (torch::arange(count) * 7 + rank) % classes;
}

void fill(nn::Module& net) {
  torch::NoGradGuard no_grad;
  for (auto& item : net.named_parameters()) {
    torch::Tensor& parameter = item.value();
    if (parameter.dim() == 1) {
      parameter.fill_(item.key().ends_with("weight") ? 1 : 0);
    } else {
      const auto inputs = static_cast<double>(parameter.numel() / parameter.size(0));
      parameter.copy_(values(parameter.sizes(), 0.37) * std::sqrt(2 / inputs));
    }
  }
}

// A GPU's work goes on after the call that asked for it.
void finish(const ddp::ProcessGroup& group) {
  if (group.device().is_cuda()) torch::cuda::synchronize();
}

struct Trained {
  double seconds = 0;
  double loss = 0;
};

template <class Net>
Trained train(const ddp::ProcessGroup& group, Net net, torch::Tensor x, torch::Tensor y, int warm,
              int steps) {
  constexpr int kCompared = 2;
  fill(*net);
  net->to(group.device());
  x = x.to(group.device());
  y = y.to(group.device());
  ddp::DistributedDataParallel<Net> model(net, group, {.gradient_as_bucket_view = true});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  Clock::time_point begin;
  torch::Tensor compared;
  for (int step = 0; step < warm + steps; ++step) {
    if (step == warm) {
      finish(group);
      begin = Clock::now();
    }
    model.zero_grad();
    torch::Tensor loss = torch::nn::functional::cross_entropy(model(x), y);
    loss.backward();
    optimizer.step();
    if (step <= kCompared) compared = loss.detach();
  }
  finish(group);
  return {.seconds = seconds_since(begin), .loss = compared.item<double>()};
}

Trained train(const ddp::ProcessGroup& group, const std::string& name, int warm, int steps) {
  const int rank = group.rank();
  const double frequency = 0.11 * (rank + 1);
  if (name == "mlp") {
    return train(group, Mlp(), values({64, 784}, frequency), labels(10, 64, rank), warm, steps);
  }
  if (name == "conv") {
    return train(group, Conv(), values({16, 3, 32, 32}, frequency), labels(10, 16, rank), warm,
                 steps);
  }
  if (name == "transformer") {
    return train(group, Transformer(), labels(128, 4 * 64, rank).view({4, 64}),
                 labels(128, 4 * 64, rank + 7), warm, steps);
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
  ddp::ProcessGroup group = ddp::init_process_group();
  std::ostringstream figures;
  figures.precision(12);
  if (arguments.at(0) == "train") {
    const Trained trained = train(group, arguments.at(1), number(2), number(3));
    const auto end = std::chrono::duration<double>(Clock::now().time_since_epoch());
    figures << trained.seconds << ' ' << end.count() << ' ' << trained.loss;
  } else {
    figures << all_reduce(group, number(1), number(2));
  }
  if (group.rank() == 0) std::cout << figures.str() << std::endl;
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
