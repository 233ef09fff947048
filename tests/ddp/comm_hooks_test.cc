// SPDX-License-Identifier: BSD-3-Clause
//
// What python_parity_test.py does not show of PowerSGD and post-local SGD, which are Python's
// there.
#include <torch/torch.h>

#include <cmath>

#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/post_local_sgd.h"
#include "worker/ddp/power_sgd.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;

// The gradients of its weights are the input as it stands, and twice that.
struct LinearSumImpl : torch::nn::Module {
  explicit LinearSumImpl(torch::IntArrayRef shape) {
    weight = register_parameter("weight", torch::zeros(shape));
    second = register_parameter("second", torch::zeros(shape));
  }
  torch::Tensor forward(const torch::Tensor& gradient) {
    return ((weight + 2 * second) * gradient).sum();
  }
  torch::Tensor weight;
  torch::Tensor second;
};
TORCH_MODULE(LinearSum);

// The weight's gradient after three steps with `gradient` of each rank.
torch::Tensor third_gradient(ProcessGroup group, const CommHook& hook,
                             const torch::Tensor& gradient) {
  LinearSum net(gradient.sizes());
  if (gradient.dim() == 4) {
    net->weight.set_data(net->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  DistributedDataParallel<LinearSum> model(net, group, {.comm_hook = hook});
  for (int step = 0; step < 3; ++step) {
    model.zero_grad();
    model(gradient).backward();
  }
  expect(torch::allclose(net->second.grad(), 2 * net->weight.grad(), 1e-4, 1e-4), "twice as much");
  return net->weight.grad();
}

}  // namespace

TEST_SUITE("ddp/comm_hooks") {
  TEST_CASE("a matrix of the approximation's rank comes through PowerSGD as it is") {
    on_ranks(2, [](ProcessGroup group) {
      for (std::int64_t rank : {1, 2, 3}) {
        const torch::Tensor columns = torch::cos(torch::arange(20 * rank).view({20, rank}) * 0.7);
        const torch::Tensor rows = torch::sin(torch::arange(16 * rank).view({rank, 16}) * 0.9 + 1);
        const torch::Tensor mean = columns.mm(rows);
        const torch::Tensor own = mean * (group.rank() == 0 ? 0.5 : 1.5);
        const std::vector<std::vector<std::int64_t>> kShapes{{20, 16}, {20, 4, 2, 2}};
        for (const std::vector<std::int64_t>& shape : kShapes) {
          const torch::Tensor seen =
              third_gradient(group,
                             power_sgd_hook({.matrix_approximation_rank = rank,
                                             .start_iteration = 2,
                                             .min_compression_rate = 1,
                                             .batch_tensors_with_same_shape = rank != 2}),
                             own.reshape(shape));
          expect(torch::allclose(seen, mean.view(shape), 1e-4, 1e-4), "the mean of the gradients");
        }
      }
    });
  }

  TEST_CASE("gradients of zero stay zero, where Python's hook makes them NaN") {
    on_ranks(2, [](ProcessGroup group) {
      const torch::Tensor seen =
          third_gradient(group, power_sgd_hook({.start_iteration = 2}), torch::zeros({20, 16}));
      expect(torch::equal(seen, torch::zeros({20, 16})), "no NaN");
    });
  }

  TEST_CASE("a state of PowerSGD serves one wrapped module") {
    on_ranks(2, [](ProcessGroup group) {
      PowerSgdState state({.start_iteration = 2});
      const std::vector<std::int64_t> shape{20, 16};
      LinearSum one{torch::IntArrayRef(shape)};
      LinearSum other{torch::IntArrayRef(shape)};
      DistributedDataParallel<LinearSum> first(one, group, {.comm_hook = state.hook()});
      DistributedDataParallel<LinearSum> second(other, group, {.comm_hook = state.hook()});
      auto step = [&](auto& model) { model(torch::ones({20, 16})).backward(); };
      auto steps = [&] {
        for (int i = 0; i < 3; ++i) {
          step(first);
          step(second);
        }
      };
      expect(
          problem_of(steps).starts_with("power_sgd_hook: two DistributedDataParallel have hooks"),
          "the second one is refused");
    });
  }

  TEST_CASE("PowerSGD without a memory compresses from the first step on") {
    on_ranks(2, [](ProcessGroup group) {
      const PowerSgdOptions options{
          .start_iteration = 0, .use_error_feedback = false, .warm_start = false};
      torch::nn::Linear net(24, 16);
      // c10d makes the buckets anew after the first step.
      DistributedDataParallel<torch::nn::Linear> model(
          net, group, {.bucket_cap_bytes = 256, .comm_hook = power_sgd_hook(options)});
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        // A gradient of rank 1, which the compression keeps.
        model(torch::ones({1, 24}) * (group.rank() + 1)).sum().backward();
        expect(torch::allclose(net->weight.grad(), torch::full({16, 24}, 1.5), 1e-3, 1e-3),
               "the gradient is the mean");
      }
    });
  }

  TEST_CASE("options out of range are refused") {
    CHECK(problem_of([] { power_sgd_hook({.min_compression_rate = std::nan("")}); }) ==
          "power_sgd_hook: min_compression_rate nan is not above 0");
    CHECK(problem_of([] { power_sgd_hook({.orthogonalization_epsilon = -1}); }) ==
          "power_sgd_hook: orthogonalization_epsilon -1.000000 is not 0 or more");
    CHECK(problem_of([] { power_sgd_hook({.matrix_approximation_rank = 0}); }) ==
          "power_sgd_hook: matrix_approximation_rank 0 is not 1 or more");
    CHECK(problem_of([] { power_sgd_hook({.start_iteration = 1}); }) ==
          "power_sgd_hook: start_iteration 1 is not 2 or more, which use_error_feedback and "
          "warm_start need");
    CHECK(problem_of([] { post_local_sgd_hook({.start_iteration = -1}); }) ==
          "post_local_sgd_hook: start_iteration -1 is not 0 or more");
    CHECK(problem_of([] { post_local_sgd_hook({}); }) ==
          "post_local_sgd_hook needs the subgroup of this rank, or "
          "post_local_gradient_allreduce = false");
    on_ranks(1, [](ProcessGroup group) {
      expect(problem_of([&] { PeriodicModelAverager(group, 0); }) ==
                 "PeriodicModelAverager: period 0 is not 1 or more",
             "a period of 0 is refused");
    });
  }
}
