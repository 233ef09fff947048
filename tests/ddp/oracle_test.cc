// SPDX-License-Identifier: BSD-3-Clause
//
// Three ways to the same gradients, on random models, data and options: c10d's Reducer under
// DistributedDataParallel, a plain all-reduce of each gradient, and one process with the batches of
// all ranks together.  python_parity_test.py has a fourth.
#include <torch/torch.h>

#include <iomanip>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <sstream>

#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;

constexpr int kSteps = 4;
constexpr int kMaxRanks = 4;
constexpr int kModelsPerCell = 2;

struct Mode {
  const char* name;
  DataParallelOptions options;
};

const Mode kModes[] = {
    {"plain", {}},
    {"views", {.gradient_as_bucket_view = true}},
    {"small buckets", {.bucket_cap_bytes = 200}},
    {"small buckets, views", {.gradient_as_bucket_view = true, .bucket_cap_bytes = 200}},
    {"unused", {.find_unused_parameters = true}},
    {"unused, views", {.find_unused_parameters = true, .gradient_as_bucket_view = true}},
    {"static", {.static_graph = true}},
    {"static, small buckets", {.static_graph = true, .bucket_cap_bytes = 200}},
    {"batched copies", {.batched_grad_copy = true}},
    {"lazy buckets", {.lazy_bucket_allocation = true}},
};

// A random pile of layers: some frozen, some in double precision, one perhaps used twice, one
// perhaps beside the way.  The same for the same seed.
struct PileImpl : torch::nn::Module {
  PileImpl(unsigned seed, bool may_skip) {
    std::mt19937 random(seed);
    auto below = [&](unsigned bound) { return random() % bound; };
    torch::manual_seed(seed);
    std::int64_t width = 5;
    const unsigned depth = 2 + below(4);
    for (unsigned i = 0; i < depth; ++i) {
      std::int64_t next = 2 + below(30);
      torch::nn::Linear layer(torch::nn::LinearOptions(width, next).bias(below(4) != 0));
      if (below(4) == 0) layer->to(torch::kDouble);
      if (i > 0 && below(5) == 0) {
        for (torch::Tensor& parameter : layer->parameters()) parameter.requires_grad_(false);
      }
      layers.push_back(register_module("layer" + std::to_string(i), layer));
      width = next;
    }
    if (may_skip && below(2) == 0) {
      beside = register_module("beside", torch::nn::Linear(3, 3));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (torch::nn::Linear& layer : layers) {
      x = torch::tanh(layer(x.to(layer->weight.dtype())));
    }
    return x.to(torch::kFloat);
  }
  std::vector<torch::nn::Linear> layers;
  torch::nn::Linear beside{nullptr};
};
TORCH_MODULE(Pile);

torch::Tensor batch(unsigned seed, int rank, int step) {
  torch::Generator generator =
      torch::make_generator<torch::CPUGeneratorImpl>(std::uint64_t{seed} * 1000 + 10 * step + rank);
  return torch::randn({3, 5}, generator);
}

// The largest difference of two modules' gradients, beside the largest gradient; 1 where only one
// of them has one.
double difference(const torch::nn::Module& left, const torch::nn::Module& right) {
  double largest = 0, scale = 1e-12;
  auto others = right.named_parameters();
  for (const auto& item : left.named_parameters()) {
    torch::Tensor here = item.value().grad(), there = others[item.key()].grad();
    if (here.defined() != there.defined()) return 1;
    if (!here.defined()) continue;
    largest = std::max(largest, (here - there).abs().max().item<double>());
    scale = std::max(scale, there.abs().max().item<double>());
  }
  return largest / scale;
}

// One rank's share of one random model's training beside the two oracles; the largest difference to
// either.
double train(ProcessGroup& group, const Mode& mode, unsigned seed, Pile net, Pile flat,
             Pile alone) {
  double largest = 0;
  DistributedDataParallel<Pile> model(net, group, mode.options);
  std::vector<torch::optim::SGD> optimizers;
  for (Pile& each : {std::ref(net), std::ref(flat), std::ref(alone)}) {
    optimizers.emplace_back(each->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  }
  for (int step = 0; step < kSteps; ++step) {
    model.zero_grad();
    flat->zero_grad();
    alone->zero_grad();
    torch::Tensor mine = batch(seed, group.rank(), step);
    model(mine).square().mean().backward();

    flat(mine).square().mean().backward();
    for (torch::Tensor& parameter : flat->parameters()) {
      if (!parameter.grad().defined()) continue;
      group.all_reduce(parameter.grad());
      parameter.grad().div_(group.world_size());
    }

    std::vector<torch::Tensor> all;
    for (int other = 0; other < group.world_size(); ++other) {
      all.push_back(batch(seed, other, step));
    }
    alone(torch::cat(all)).square().mean().backward();

    largest = std::max({largest, difference(*net, *flat), difference(*net, *alone)});
    for (torch::optim::SGD& optimizer : optimizers) optimizer.step();
  }
  return largest;
}

// The largest difference of the models of `seeds` on `world_size` ranks.
double largest_difference(const Mode& mode, const std::string& backend, int world_size,
                          const std::vector<unsigned>& seeds) {
  const bool may_skip = mode.options.find_unused_parameters || mode.options.static_graph;
  std::vector<Pile> nets;  // made here, since all threads share one generator of random numbers
  for (unsigned seed : seeds) {
    for (int i = 0; i < 3 * world_size; ++i) nets.emplace_back(seed, may_skip);
  }
  std::vector<double> largest(static_cast<std::size_t>(world_size));
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto train_all = [&](ProcessGroup group) {
    auto rank = static_cast<std::size_t>(group.rank());
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      const Pile* mine = &nets[3 * (i * static_cast<std::size_t>(world_size) + rank)];
      double found = train(group, mode, seeds[i], mine[0], mine[1], mine[2]);
      expect(found < 1e-4, "seed " + std::to_string(seeds[i]) + " differs by little, not " +
                               std::to_string(found));  // float sums in another order
      largest[rank] = std::max(largest[rank], found);
    }
  };
  const auto problems = run_ranks(ranks, world_size, train_all, std::chrono::minutes(1), backend);
  CHECK(problems == std::vector<std::string>(ranks.size()));
  return *std::max_element(largest.begin(), largest.end());
}

}  // namespace

TEST_SUITE("ddp/oracle") {
  TEST_CASE("Reducer, plain all-reduces and one process agree") {
    std::ostringstream table;
    table << std::scientific << std::setprecision(0)
          << "largest difference over the largest gradient, " << kModelsPerCell
          << " random models each\nmode | backend | 1 rank | 2 ranks | 3 ranks | 4 ranks\n";
    unsigned seed = 1;
    for (const Mode& mode : kModes) {
      for (const std::string backend : {"shm", "gloo"}) {
        table << mode.name << " | " << backend;
        for (int world_size = 1; world_size <= kMaxRanks; ++world_size) {
          std::vector<unsigned> seeds;
          for (int i = 0; i < kModelsPerCell; ++i) seeds.push_back(seed++);
          CAPTURE(mode.name);
          CAPTURE(backend);
          CAPTURE(world_size);
          table << " | " << largest_difference(mode, backend, world_size, seeds);
        }
        table << '\n';
      }
    }
    std::cout << table.str();
  }
}
