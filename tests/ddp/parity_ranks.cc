// SPDX-License-Identifier: BSD-3-Clause
//
// One rank of python_parity_test.py: trains as the script's Python rank does, in one mode after the
// other, and rank 0 writes every gradient to a file named by the mode.
//
//   parity_ranks FOLDER MODE...
#include <torch/torch.h>

#include <iostream>
#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "worker/ddp/data_parallel.h"
#include "worker/ddp/post_local_sgd.h"
#include "worker/ddp/power_sgd.h"
#include "worker/ddp/sync_batch_norm.h"
#include "worker/ddp/tensor_file.h"
#include "worker/ddp/zero_optimizer.h"

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
  std::map<std::string, torch::Tensor> forward(torch::Tensor x, bool go_left) {
    x = torch::tanh(wide(norm(torch::relu(first(x)))));
    torch::nn::Linear& branch = go_left ? left : right;
    return {{"main", branch(x.to(branch->weight.dtype())).to(torch::kFloat)}, {"hidden", x}};
  }
  torch::nn::Linear first{6, 5};
  ddp::SyncBatchNorm norm{5};
  torch::nn::Linear wide{5, 70};
  torch::nn::Linear left{70, 3};
  torch::nn::Linear right{70, 3};
};
TORCH_MODULE(Net);

torch::Tensor wave(std::int64_t count, double phase) {
  return torch::sin(torch::arange(count, torch::kDouble) * 0.7 + phase).to(torch::kFloat);
}

ddp::CommHook mean_hook() {
  return [](ddp::ProcessGroup& group, c10d::GradBucket& bucket) {
    std::vector<at::Tensor> sent{bucket.getBufferRef().div_(group.world_size())};
    return group.c10d()->allreduce(sent)->getFuture();
  };
}

// Rank 0 with the last one; the others form a group of their own.
ddp::ProcessGroup subgroup_of(ddp::ProcessGroup& group) {
  const int last = group.world_size() - 1;
  std::vector<int> others;
  for (int rank = 1; rank < last; ++rank) others.push_back(rank);
  auto outer = group.new_group(last == 0 ? std::vector<int>{0} : std::vector<int>{last, 0});
  auto inner = others.empty() ? std::nullopt : group.new_group(others);
  return outer ? *outer : *inner;
}

ddp::CommHook hook_of(const std::string& mode, ddp::ProcessGroup& group) {
  if (mode == "hook") return mean_hook();
  if (mode == "power_sgd") return ddp::power_sgd_hook({.start_iteration = 2});
  if (mode == "fresh_power_sgd") {
    return ddp::power_sgd_hook({.matrix_approximation_rank = 3,
                                .start_iteration = 1,
                                .min_compression_rate = 0.5,
                                .use_error_feedback = false,
                                .warm_start = false,
                                .orthogonalization_epsilon = 1e-8,
                                .random_seed = 5,
                                .batch_tensors_with_same_shape = true});
  }
  if (mode == "post_local_sgd") {
    return ddp::post_local_sgd_hook({.start_iteration = 2, .subgroup = subgroup_of(group)});
  }
  if (mode == "post_local_alone") {
    return ddp::post_local_sgd_hook({.start_iteration = 2, .post_local_gradient_allreduce = false});
  }
  return nullptr;
}

ddp::DataParallelOptions options_of(const std::string& mode, ddp::ProcessGroup& group) {
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
      {"hook", {}},
      {"power_sgd", {}},
      {"fresh_power_sgd", {}},
      {"post_local_sgd", {}},
      {"post_local_alone", {}},
      {"mixed", {}},
      {"two", {}},
      {"outputs", {.find_unused_parameters = true}},
      {"batched", {.batched_grad_copy = true}},
      {"lazy", {.lazy_bucket_allocation = true}},
      {"clip", {}},
      {"join", {}},
      {"join_remaining", {}},
      {"join_static", {.static_graph = true}},
      {"subgroup", {}},
      {"ignored", {.ignored = {"wide.weight", "norm.running_mean"}}},
      {"sync_batch_norm", {}},
      {"bfloat16_module",
       {.mixed_precision = {{.reduce_dtype = at::kFloat, .buffer_dtype = at::kBFloat16}}}},
      {"float16_module",
       {.mixed_precision = {{.param_dtype = at::kHalf, .buffer_dtype = at::kHalf}}}},
      {"zero", {}},
  };
  ddp::DataParallelOptions options = kModes.at(mode);
  options.comm_hook = hook_of(mode, group);
  return options;
}

Net make_net(const std::string& mode, double phase) {
  Net net;
  int index = 0;
  for (torch::Tensor& parameter : net->parameters()) {
    parameter.data().copy_(wave(parameter.numel(), phase + index++).view(parameter.sizes()) * 0.3);
  }
  const bool has_branches = mode.starts_with("unused");
  for (torch::Tensor& parameter : net->right->parameters()) parameter.requires_grad_(has_branches);
  if (mode == "mixed") {
    net->left->to(torch::kDouble);
    for (torch::Tensor& parameter : net->norm->parameters()) parameter.requires_grad_(false);
  }
  return net;
}

using Model = ddp::DistributedDataParallel<Net>;

// One training in one mode; keeps the gradients of each step.
struct Training {
  ddp::ProcessGroup group;
  std::string mode;
  std::vector<Net> nets;
  std::vector<std::unique_ptr<Model>> models;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::optional<ddp::PostLocalSgdOptimizer> averaging;
  std::vector<ddp::NamedTensor> seen;

  Training(ddp::ProcessGroup ranks, const std::string& name) : group(std::move(ranks)), mode(name) {
    if (mode == "subgroup") group = subgroup_of(group);
    std::vector<torch::Tensor> parameters;
    for (int i = 0; i < (mode == "two" ? 2 : 1); ++i) {
      nets.push_back(make_net(mode, 5.0 * i));
      nets.back()->to(group.device());
      if (mode == "sync_batch_norm") ddp::convert_sync_batchnorm(*nets.back(), group);
      models.push_back(std::make_unique<Model>(nets.back(), group, options_of(mode, group)));
      for (const torch::Tensor& tensor : models.back()->parameters()) parameters.push_back(tensor);
    }
    const auto settings = torch::optim::SGDOptions(0.1).momentum(0.9);
    if (mode == "zero") {
      using Zero = ddp::ZeroRedundancyOptimizer<torch::optim::SGD>;
      optimizer = std::make_unique<Zero>(parameters, group, settings);
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(parameters, settings);
    }
    if (mode.starts_with("post_local")) {
      averaging.emplace(*optimizer, ddp::PeriodicModelAverager(group, 2, /*warmup_steps=*/2));
    }
  }

  void backward(int step) {
    torch::Tensor x = wave(4 * 6, 10 * step + group.rank()).view({4, 6}).to(group.device());
    const bool has_branches = mode.starts_with("unused");
    const bool go_left = !has_branches || (step + group.rank()) % 3 != 0;
    const char* output = mode == "outputs" && step % 2 == 1 ? "hidden" : "main";
    torch::Tensor loss = torch::zeros({}, group.device());
    for (auto& model : models) loss = loss + model->forward(x, go_left)[output].square().mean();
    loss.backward();
  }

  void step(int step) {
    const bool is_accumulating = mode.starts_with("no_sync");
    const bool is_last_of_two = !is_accumulating || step % 2 == 1;
    if (!is_accumulating || step % 2 == 0) {
      for (auto& model : models) model->zero_grad();
    }
    if (is_last_of_two) {
      backward(step);
      if (mode == "clip") models[0]->clip_grad_norm(0.05);
      averaging ? averaging->step() : optimizer->step();
    } else {
      auto guard = models[0]->no_sync();
      backward(step);
    }
    for (std::size_t i = 0; i < models.size(); ++i) {
      for (const auto& item : models[i]->named_parameters()) {
        if (item.value().grad().defined()) note(step, i, item.key(), item.value().grad());
      }
    }
  }

  void note(int step, std::size_t net, const std::string& name, const torch::Tensor& tensor) {
    std::string when = step < kSteps ? "step " + std::to_string(step) : "end";
    seen.push_back({when + ": net " + std::to_string(net) + " " + name, tensor.clone()});
  }

  void run() {
    if (mode.ends_with(
            "_module")) {  // Python's first step would give what was in the memory before
      backward(0);
      models[0]->zero_grad();
    }
    if (mode.starts_with("join")) {
      models[0]->join(
          [&] {
            const int least = mode == "join_static" ? 1 : 0;  // its first step is every rank's
            for (int i = 0; i < std::max(kSteps - 2 * group.rank(), least); ++i) step(i);
          },
          {.divide_by_initial_world_size = mode != "join_remaining"});
    } else {
      for (int i = 0; i < kSteps; ++i) step(i);
    }
    for (std::size_t i = 0; i < models.size(); ++i) {
      for (const auto& item : models[i]->named_parameters())
        note(kSteps, i, item.key(), item.value());
      for (const auto& item : models[i]->named_buffers()) note(kSteps, i, item.key(), item.value());
    }
  }
};

void train(ddp::ProcessGroup group, const std::string& mode, const std::string& file) {
  Training training(group, mode);
  training.run();
  if (group.rank() == 0) ddp::save_tensors(file, training.seen);
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
