// SPDX-License-Identifier: BSD-3-Clause
//
// What python_parity_test.py does not show of mixed_precision: which values and dtypes a module and
// its optimizer see, and when.
#include <torch/torch.h>

#include <cmath>

#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/tensor_file.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;

// Notes what it sees in forward().  The gradients of `weight` are the input's sums.
struct SeerImpl : torch::nn::Module {
  SeerImpl() {
    weight = register_parameter("weight", torch::ones({4}));
    local = register_parameter("local", torch::ones({1}));
    frozen = register_parameter("frozen", torch::ones({1}), /*requires_grad=*/false);
    mean = register_buffer("mean", torch::ones({4}));
    count = register_buffer("count", torch::zeros({1}, torch::kLong));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    seen = {weight.scalar_type(), local.scalar_type(), frozen.scalar_type(),
            mean.scalar_type(),   count.scalar_type(), x.scalar_type()};
    first = weight.detach()[0].item<double>();
    if (throws) throw std::runtime_error("in forward");
    torch::Tensor result = (weight * x).sum(0);
    if (uses_local) result = result + 0 * local;
    return result;
  }
  std::vector<at::ScalarType> seen;
  double first = 0;
  bool throws = false;
  bool uses_local = true;
  torch::Tensor weight, local, frozen, mean, count;
};
TORCH_MODULE(Seer);
using Model = DistributedDataParallel<Seer>;

using Dtypes = std::vector<at::ScalarType>;
constexpr at::ScalarType kLow = torch::kBFloat16;
constexpr at::ScalarType kFull = torch::kFloat;

void expect_seen(const Seer& net, const Dtypes& wanted) {
  expect(net->seen == wanted, "forward() sees those dtypes");
}

}  // namespace

TEST_SUITE("ddp/mixed_precision") {
  TEST_CASE("forward() sees copies of low precision, the optimizer the values themselves") {
    on_ranks(2, [](ProcessGroup group) {
      Seer net;
      const double fine = 1 + std::ldexp(1, -12);  // as bfloat16 it is 1
      net->weight.data().fill_(fine);
      const void* memory = net->weight.const_data_ptr();
      Model model(net, group, {.mixed_precision = MixedPrecision{}});
      torch::optim::SGD optimizer(model.parameters(), 1.0);
      for (int step = 0; step < 8; ++step) {
        optimizer.zero_grad();
        const torch::Tensor y = model(torch::full({2, 4}, std::ldexp(1, -13)));
        expect_seen(net, {kLow, kLow, kLow, kFull, torch::kLong, kLow});
        expect(y.scalar_type() == kLow, "the result is of low precision");
        expect(net->weight.scalar_type() == kLow, "until the end of backward()");
        y.sum().backward();
        expect(net->weight.scalar_type() == kFull && net->weight.const_data_ptr() == memory,
               "afterwards the parameter is itself, in its own memory");
        expect(net->weight.grad().scalar_type() == kFull, "and so is its gradient");
        expect(net->frozen.scalar_type() == kFull, "and what needs no gradient");
        optimizer.step();
      }
      // Of bfloat16 no step of this size would change anything.
      expect(net->weight[0].item<double>() == fine - 8 * std::ldexp(1, -12), "small steps add up");
      expect(std::abs(net->first - 1) < 0.01, "what forward() saw was near it");
    });
  }

  TEST_CASE("gradients are added up in reduce_dtype") {
    on_ranks(2, [](ProcessGroup group) {
      // 256 + 1 is no bfloat16.
      const torch::Tensor x = torch::full({1, 4}, group.rank() == 0 ? 256.0 : 1.0);
      for (bool is_full : {false, true}) {
        Seer net;
        Model model(net, group,
                    {.mixed_precision = MixedPrecision{
                         .reduce_dtype = is_full ? std::optional(kFull) : std::nullopt}});
        model(x).sum().backward();
        expect(net->weight.grad().scalar_type() == kFull, "the gradient is of full precision");
        expect(net->weight.grad()[0].item<double>() == (is_full ? 128.5 : 128),
               "the sum is rounded in reduce_dtype");
      }
    });
  }

  TEST_CASE("buffers are cast for good if asked for, and integers never") {
    on_ranks(2, [](ProcessGroup group) {
      Seer net;
      Model model(net, group, {.mixed_precision = MixedPrecision{.buffer_dtype = torch::kHalf}});
      expect(net->mean.scalar_type() == torch::kHalf, "from the wrapping on");
      model(torch::ones({2, 4})).sum().backward();
      expect_seen(net, {kLow, kLow, kLow, torch::kHalf, torch::kLong, kLow});
      expect(net->mean.scalar_type() == torch::kHalf, "and after a step");
    });
  }

  TEST_CASE("ignored parameters and buffers stay as they are") {
    on_ranks(2, [](ProcessGroup group) {
      Seer net;
      Model model(
          net, group,
          {.ignored = {"local", "mean"}, .mixed_precision = MixedPrecision{.buffer_dtype = kLow}});
      const torch::Tensor x = torch::full({1, 4}, group.rank() + 1.0);
      model(x).sum().backward();
      expect_seen(net, {kLow, kFull, kLow, kFull, torch::kLong, kLow});
      expect(net->weight.grad()[0].item<double>() == 1.5, "the others are reduced");
    });
  }

  TEST_CASE("parameters that have that precision already are trained as well") {
    for (const bool all : {false, true}) {
      on_ranks(2, [&](ProcessGroup group) {
        Seer net;
        if (all) net->to(kLow);
        net->local.set_data(net->local.to(kLow));
        Model model(net, group, {.mixed_precision = MixedPrecision{}});
        for (int step = 1; step <= 3; ++step) {
          model.zero_grad();
          model(torch::full({1, 4}, step * (group.rank() + 1.0))).sum().backward();
          expect(net->weight.grad().scalar_type() == (all ? kLow : kFull), "in its own dtype");
          expect(net->weight.grad()[0].item<double>() == 1.5 * step, "the mean of both ranks");
          expect(net->local.scalar_type() == kLow, "what is low stays so");
          expect(net->local.grad().defined(), "and has a gradient");
        }
      });
    }
  }

  TEST_CASE("what no_sync gathers is reduced with the pass that follows") {
    on_ranks(2, [](ProcessGroup group) {
      Seer net;
      Model model(net, group, {.mixed_precision = MixedPrecision{}});
      const torch::Tensor x = torch::full({1, 4}, group.rank() + 1.0);
      {
        auto alone = model.no_sync();
        model(x).sum().backward();
        model(2 * x).sum().backward();
        expect(net->weight.scalar_type() == kLow, "no backward has reduced yet");
        expect(net->weight.grad()[0].item<double>() == 3 * (group.rank() + 1.0), "own gradients");
      }
      model(3 * x).sum().backward();
      expect(net->weight.scalar_type() == kFull, "the values of full precision are back");
      expect(net->weight.grad().scalar_type() == kFull, "and the gradients are");
      expect(net->weight.grad()[0].item<double>() == 9, "the mean of 6 and 12");
    });
  }

  TEST_CASE("a forward without gradients, and one that throws, leave the values as they were") {
    on_ranks(2, [](ProcessGroup group) {
      Seer net;
      Model model(net, group, {.mixed_precision = MixedPrecision{}});
      {
        const torch::NoGradGuard no_grad;
        expect(model(torch::ones({2, 4})).scalar_type() == kLow, "the result is of low precision");
      }
      expect(net->weight.scalar_type() == kFull, "after a forward without gradients");
      net->throws = true;
      std::string said;
      try {
        model(torch::ones({2, 4}));
      } catch (const std::runtime_error& error) {
        said = error.what();
      }
      expect(said == "in forward", "the program's own exception comes through");
      expect(net->weight.scalar_type() == kFull, "after one that threw");
      net->throws = false;
      model(torch::ones({1, 4})).sum().backward();
      expect(net->weight.grad()[0].item<double>() == 1, "and training goes on");
    });
  }

  TEST_CASE("between a forward and its backward, files have the values of full precision") {
    on_ranks(1, [](ProcessGroup group) {
      Seer net;
      const double fine = 1 + std::ldexp(1, -12);  // no bfloat16
      {
        const torch::NoGradGuard no_grad;
        net->weight.fill_(fine);
      }
      Model model(net, group, {.mixed_precision = MixedPrecision{}});
      {
        auto alone = model.no_sync();
        model(torch::ones({1, 4})).sum().backward();
      }
      expect(net->weight.scalar_type() == kLow, "the backward has not reduced");
      TensorMap saved;
      for (const NamedTensor& item : model_tensors(*net)) saved[item.name] = item.tensor.clone();
      expect(saved["weight"].scalar_type() == kFull && saved["weight"][0].item<double>() == fine,
             "what is saved");

      saved["weight"].fill_(2 * fine);
      expect(restore_model(*net, saved).has_value(), "it fits");
      expect(net->weight[0].item<double>() == 2 * fine, "what is restored is there at once");
      model(torch::ones({1, 4})).sum().backward();
      expect(net->first == 2 && net->weight[0].item<double>() == 2 * fine, "and later");
    });
  }

  TEST_CASE("a step between a forward and its backward is an error of the next forward") {
    on_ranks(1, [](ProcessGroup group) {
      Seer net;
      Model model(net, group, {.mixed_precision = MixedPrecision{}});
      torch::Tensor y = model(torch::ones({1, 4}));
      net->weight.data().add_(1);  // no version: not to be seen
      {
        const torch::NoGradGuard no_grad;
        net->frozen.add_(1);
      }
      y.sum().backward();
      const std::string problem = problem_of([&] { model(torch::ones({1, 4})); });
      expect(problem.starts_with("mixed_precision: parameters were changed before"), problem);
      model(torch::ones({1, 4})).sum().backward();
    });
  }

  TEST_CASE("what a forward itself changes is its own affair: an embedding's max_norm") {
    on_ranks(1, [](ProcessGroup group) {
      torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 3).max_norm(0.5));
      DistributedDataParallel<torch::nn::Embedding> model(net, group,
                                                          {.mixed_precision = MixedPrecision{}});
      for (int step = 0; step < 3; ++step) model(torch::arange(4)).sum().backward();
      auto alone = model.no_sync();
      for (int step = 0; step < 3; ++step) model(torch::arange(4)).sum().backward();
    });
  }

  TEST_CASE("a step that would be lost is an error") {
    on_ranks(1, [](ProcessGroup group) {
      for (const bool has_backward : {false, true}) {
        Seer net;
        Model model(net, group, {.mixed_precision = MixedPrecision{}});
        torch::optim::SGD optimizer(model.parameters(), 1.0);
        {
          auto alone = model.no_sync();
          const torch::Tensor y = model(torch::ones({1, 4}));
          if (has_backward) y.sum().backward();
        }
        {
          const torch::NoGradGuard no_grad;
          net->weight.add_(1);  // as a step does
        }
        const std::string problem = problem_of([&] { model(torch::ones({1, 4})); });
        expect(problem.starts_with("mixed_precision: parameters were changed before"), problem);
      }
    });
  }

  TEST_CASE("a parameter that is left out is named on all ranks") {
    const std::vector<std::string> problems = run_ranks(2, [](ProcessGroup group) {
      Seer net;
      Model model(net, group, {.mixed_precision = MixedPrecision{}});
      net->uses_local = group.rank() == 0;
      for (int step = 0; step < 2; ++step) model(torch::ones({1, 4})).sum().backward();
    });
    for (const std::string& problem : problems) {
      CHECK_MESSAGE(problem.find("rank 1 left out the parameter local") != std::string::npos,
                    problem);
    }
  }

  TEST_CASE("what does not go together is refused in words") {
    on_ranks(1, [](ProcessGroup group) {
      auto said = [&](const DataParallelOptions& options) {
        return problem_of([&] { Model(Seer(), group, options); });
      };
      const MixedPrecision low{};
      expect(said({.mixed_precision = MixedPrecision{.param_dtype = torch::kInt}}) ==
                 "mixed_precision: Int is no floating-point type",
             "integers are refused");
      expect(said({.mixed_precision = MixedPrecision{.reduce_dtype = torch::kComplexFloat}}) ==
                 "mixed_precision: ComplexFloat is no floating-point type",
             "complex numbers are refused");
      expect(said({.mixed_precision = MixedPrecision{.buffer_dtype = torch::kBool}}) ==
                 "mixed_precision: Bool is no floating-point type",
             "truth values are refused");
      auto excluded = [&](const DataParallelOptions& options, const std::string& name) {
        expect(said(options) == "mixed_precision and " + name + " exclude each other",
               name + " is refused, not: " + said(options));
      };
      excluded({.find_unused_parameters = true, .mixed_precision = low}, "find_unused_parameters");
      excluded({.static_graph = true, .mixed_precision = low}, "static_graph");
      excluded({.gradient_as_bucket_view = true, .mixed_precision = low},
               "gradient_as_bucket_view");
      excluded({.compression = Compression::Float16, .mixed_precision = low}, "compression");
      excluded({.comm_hook = bfloat16_hook(), .mixed_precision = low}, "comm_hook");

      Seer complex;
      complex->weight.set_data(torch::ones({4}, torch::kComplexFloat));
      expect(problem_of([&] { Model(complex, group, {.mixed_precision = low}); }) ==
                 "mixed_precision: the parameter weight is ComplexFloat, which is no "
                 "floating-point type",
             "a complex parameter is named");
    });
  }
}
