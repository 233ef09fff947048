// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/sync_batch_norm.h"

#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/forwarding_backend.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using torch::nn::BatchNormOptions;

struct LayeredImpl : torch::nn::Module {
  LayeredImpl() { register_module("layers", layers); }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  torch::nn::Sequential layers{torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3),
                               torch::nn::ReLU(), torch::nn::BatchNorm1d(3)};
};
TORCH_MODULE(Layered);

// Of a caller that waits at once it does all, and gives no work, as NCCL's does since torch 2.7.
struct GivesNoWork : shm::Forwarding {
  using Forwarding::Forwarding;
  const std::string getBackendName() const override { return "no work"; }
  template <class Options>
  static c10::intrusive_ptr<c10d::Work> ended(c10::intrusive_ptr<c10d::Work> work,
                                              const Options& options) {
    if constexpr (requires { options.asyncOp; }) {
      if (options.asyncOp) return work;
      work->wait();
      return nullptr;
    }
    return work;
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return ended(Forwarding::allreduce(tensors, options), options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return ended(Forwarding::allgather(outputs, inputs, options), options);
  }
};

ProcessGroup over_no_work(const ProcessGroup& group) {
  auto store = c10::make_intrusive<c10d::PrefixStore>("no work", group.store());
  auto bare = c10::make_intrusive<c10d::ProcessGroup>(store, group.rank(), group.world_size());
  const auto type = c10d::ProcessGroup::BackendType::CUSTOM;
  bare->setDefaultBackend(type);
  bare->setBackend(
      c10::DeviceType::CPU, type,
      c10::make_intrusive<GivesNoWork>(group.c10d()->getBackend(c10::DeviceType::CPU)));
  return adopt_process_group(bare, {.store = store});
}

struct Case {
  std::string name;
  std::vector<std::int64_t> shape;    // without the samples
  std::vector<std::int64_t> samples;  // of each rank
  BatchNormOptions options{3};
  torch::ScalarType dtype = torch::kDouble;
  bool is_channels_last = false;
};

const Case kCases[] = {
    {"two dimensions", {3}, {4, 4}, BatchNormOptions(3)},
    {"uneven batches of images", {3, 4, 5}, {5, 1, 2}, BatchNormOptions(3).eps(1e-2).momentum(0.4)},
    {"a rank without samples", {3, 2}, {0, 3, 2}, BatchNormOptions(3)},
    {"one sample on each rank", {3}, {1, 1}, BatchNormOptions(3)},
    {"a cumulative average", {3, 2, 2, 2}, {2, 3}, BatchNormOptions(3).momentum(std::nullopt)},
    {"no parameters", {3}, {2, 3}, BatchNormOptions(3).affine(false)},
    {"no running statistics", {3}, {2, 3}, BatchNormOptions(3).track_running_stats(false)},
    {"float, channels last", {3, 4, 4}, {2, 3}, BatchNormOptions(3), torch::kFloat, true},
    {"half types", {3}, {8, 4}, BatchNormOptions(3), torch::kBFloat16},
};

// The input of a rank, with a large mean, which is hard on a variance.
torch::Tensor input_of(const Case& item, std::size_t rank, int step) {
  std::vector<std::int64_t> shape = item.shape;
  shape.insert(shape.begin(), item.samples[rank]);
  torch::Tensor input = (inputs(static_cast<int>(rank), step, shape) + 20).to(item.dtype);
  if (item.is_channels_last) input = input.contiguous(torch::MemoryFormat::ChannelsLast);
  return input;
}

void expect_near(const torch::Tensor& here, const torch::Tensor& expected, double tolerance,
                 const std::string& claim) {
  expect(here.sizes() == expected.sizes() && here.scalar_type() == expected.scalar_type(),
         claim + ", in its shape and dtype");
  expect(
      torch::allclose(here.to(torch::kDouble), expected.to(torch::kDouble), tolerance, tolerance),
      claim);
}

// Trains a layer on the ranks beside one in one process that has all their samples.
void compare(const Case& item, ProcessGroup group) {
  const auto rank = static_cast<std::size_t>(group.rank());
  const double tolerance = item.dtype == torch::kDouble  ? 1e-9
                           : item.dtype == torch::kFloat ? 1e-4
                                                         : 0.1;
  SyncBatchNorm here(item.options, group);
  // LibTorch checks the dimensions of its own layers; its function does not.
  SyncBatchNorm whole(item.options);
  if (item.dtype == torch::kDouble) {
    here->to(torch::kDouble);
    whole->to(torch::kDouble);
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<torch::Tensor> parts;
    std::int64_t begin = 0;
    for (std::size_t other = 0; other < item.samples.size(); ++other) {
      if (other < rank) begin += item.samples[other];
      parts.push_back(input_of(item, other, step));
    }
    torch::Tensor all = torch::cat(parts).detach().requires_grad_();
    torch::Tensor own = parts[rank].detach().requires_grad_();
    const std::int64_t count = item.samples[rank];
    const torch::Tensor expected = whole(all);
    const torch::Tensor output = here(own);
    expect_near(output, expected.narrow(0, begin, count), tolerance, "the output");

    const torch::Tensor slope =
        torch::sin(torch::arange(all.numel(), torch::kDouble)).view(all.sizes()).to(item.dtype);
    here->zero_grad();
    whole->zero_grad();
    (expected * slope).sum().backward();
    (output * slope.narrow(0, begin, count)).sum().backward();
    expect_near(own.grad(), all.grad().narrow(0, begin, count), tolerance, "the input's gradient");
    for (const auto& parameter : here->named_parameters()) {
      torch::Tensor sum = parameter.value().grad().clone();
      group.all_reduce(sum);
      expect_near(sum, whole->named_parameters()[parameter.key()].grad(), 10 * tolerance,
                  "the gradient of " + parameter.key());
    }
    for (const auto& buffer : here->named_buffers()) {
      expect_near(buffer.value(), whole->named_buffers()[buffer.key()], tolerance, buffer.key());
    }
  }
  here->eval();
  whole->eval();
  if (!item.options.track_running_stats()) return;
  expect_near(here(input_of(item, 1, 9)), whole(input_of(item, 1, 9)), tolerance,
              "what is evaluated");
}

}  // namespace

TEST_SUITE("ddp/sync_batch_norm") {
  TEST_CASE("ranks normalise as one process with all their samples") {
    for (const Case& item : kCases) {
      CAPTURE(item.name);
      on_ranks(static_cast<int>(item.samples.size()),
               [&](ProcessGroup group) { compare(item, group); });
    }
  }

  TEST_CASE("a transport that has nothing to wait for will do") {
    on_ranks(2, [](ProcessGroup group) { compare(kCases[0], over_no_work(group)); });
  }

  TEST_CASE("without a group, and in a group of one, it is BatchNorm") {
    on_ranks(1, [](ProcessGroup group) {
      torch::nn::BatchNorm2d norm(3);
      const torch::Tensor input = inputs(0, 0, {4, 3, 2, 2});
      for (const bool has_group : {false, true}) {
        SyncBatchNorm same(BatchNormOptions(3), has_group ? std::optional(group) : std::nullopt);
        norm->reset_running_stats();
        expect(torch::equal(same(input), norm(input)), "the output");
        expect(torch::equal(same->running_var, norm->running_var), "and what is counted");
      }
    });
  }

  TEST_CASE("the layers of a Sequential are converted, with their tensors and modes") {
    on_ranks(2, [](ProcessGroup group) {
      Layered net;
      auto* first = net->layers[1]->as<torch::nn::BatchNorm1d>();
      first->running_mean.fill_(5);
      net->layers[3]->eval();
      const std::vector<torch::Tensor> before = net->parameters();

      convert_sync_batchnorm(*net, group);
      const std::vector<torch::Tensor> after = net->parameters();
      expect(before.size() == after.size(), "as many parameters");
      for (std::size_t i = 0; i < before.size(); ++i) {
        expect(after[i].is_same(before[i]), "an optimizer that was made before still has them");
      }
      auto* converted = net->layers[1]->as<SyncBatchNorm>();
      expect(converted != nullptr && converted->running_mean[0].item<float>() == 5, "statistics");
      expect(converted->is_training() && !net->layers[3]->is_training(), "and modes are kept");
      std::ostringstream words;
      words << net;
      expect(words.str().find("::BatchNorm1d") == std::string::npos &&
                 words.str().find("ddprun::ddp::SyncBatchNorm(3, eps=1e-05, momentum=0.1, "
                                  "affine=true, track_running_stats=true, ranks=2)") !=
                     std::string::npos,
             "it prints what it is now, not " + words.str());

      net->layers[3]->train();
      DistributedDataParallel<Layered> model(net, group);
      const torch::Tensor output = model(inputs(group.rank(), 0, {2 + group.rank(), 4}));
      torch::Tensor sum = output.sum(0).detach();
      group.all_reduce(sum);
      expect(sum.abs().max().item<float>() < 1e-5, "the mean over all ranks is zero");
      expect(output.sum(0).abs().max().item<float>() > 1e-3, "and over this one it is not");
      output.square().mean().backward();
    });
  }

  TEST_CASE("a BatchNorm whose type is fixed is refused by name, and nothing is changed") {
    on_ranks(2, [](ProcessGroup group) {
      torch::nn::Sequential net(torch::nn::BatchNorm1d(3), Normalised());
      const std::string problem = problem_of([&] { convert_sync_batchnorm(*net, group); });
      expect(problem ==
                 "convert_sync_batchnorm: 1.norm is a BatchNorm outside a torch::nn::Sequential, "
                 "whose type is fixed: declare it as ddprun::ddp::SyncBatchNorm",
             "it is named, not: " + problem);
      expect(net[0]->as<torch::nn::BatchNorm1d>() != nullptr, "nothing is changed");
      torch::nn::BatchNorm1d alone(3);
      expect(problem_of([&] {
               convert_sync_batchnorm(*alone, group);
             }).starts_with("convert_sync_batchnorm: the module itself is a BatchNorm"),
             "nor is a layer that is all there is");
    });
  }

  TEST_CASE("inputs that do not fit and second derivatives are refused") {
    on_ranks(2, [](ProcessGroup group) {
      SyncBatchNorm norm(BatchNormOptions(3), group);
      expect(problem_of([&] { norm(torch::ones({3})); }) ==
                 "SyncBatchNorm takes inputs of 2 dimensions or more, and this one has 1",
             "one dimension");
      expect(problem_of([&] {
               norm(torch::ones({2, 4}));
             }) == "SyncBatchNorm has 3 channels, and the input has 4",
             "other channels");
      torch::Tensor input = inputs(group.rank(), 0, {2, 3}).requires_grad_();
      expect(problem_of([&] {
               torch::autograd::grad({norm(input).square().sum()}, {input}, {},
                                     /*retain_graph=*/true, /*create_graph=*/true);
             }) == "SyncBatchNorm has no second derivative",
             "a second derivative");
    });
  }
}
