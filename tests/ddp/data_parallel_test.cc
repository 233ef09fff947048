// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/data_parallel.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "worker/ddp/replica_check.h"
#include "worker/ddp/tensor_file.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using namespace std::chrono_literals;

constexpr int kSteps = 5;
constexpr std::int64_t kBatch = 4;  // per rank

// The oracle: the mean over the ranks of every gradient, one plain all-reduce each.
void average_gradients(ProcessGroup& group, torch::nn::Module& module) {
  for (torch::Tensor& parameter : module.parameters()) {
    if (!parameter.grad().defined()) continue;
    torch::Tensor gradient = parameter.grad();
    group.all_reduce(gradient);
    gradient.div_(group.world_size());
  }
}

// Throws unless both modules have the same gradients, defined for the same parameters.
void expect_same_gradients(const torch::nn::Module& module, const torch::nn::Module& reference,
                           const std::string& when) {
  auto expected = reference.named_parameters();
  for (const auto& item : module.named_parameters()) {
    torch::Tensor here = item.value().grad();
    torch::Tensor there = expected[item.key()].grad();
    std::string what = "the gradient of " + item.key() + " in " + when;
    expect(here.defined() == there.defined(), what + " is there on both or on none");
    if (here.defined()) expect(torch::allclose(here, there, 1e-5, 1e-7), what + " is the oracle's");
  }
}

template <class Net>
Net seeded() {
  torch::manual_seed(7);
  return Net();
}

// A forward and a backward of a wrapped module and of a bare copy, whose gradients the oracle
// averages.  `loss_of` runs the forward: (model, rank, step) to a loss.
template <class Net, class Loss>
void step_beside_oracle(ProcessGroup& group, DistributedDataParallel<Net>& model, Net& reference,
                        int step, Loss loss_of) {
  model.zero_grad();
  reference->zero_grad();
  loss_of(model, group.rank(), step).backward();
  loss_of(reference, group.rank(), step).backward();
  average_gradients(group, *reference);
}

// So many steps, and after each the gradients are the oracle's.
template <class Net, class Loss>
void steps_beside_oracle(ProcessGroup& group, DistributedDataParallel<Net>& model, Net& net,
                         Net& reference, int count, Loss loss_of) {
  for (int step = 0; step < count; ++step) {
    step_beside_oracle(group, model, reference, step, loss_of);
    expect_same_gradients(*net, *reference, "step " + std::to_string(step));
  }
}

// Trains a wrapped module beside the bare copy.
template <class Net, class Loss>
void train_beside_oracle(ProcessGroup group, Net net, Net reference,
                         const DataParallelOptions& options, Loss loss_of) {
  DistributedDataParallel<Net> model(net, group, options);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD reference_optimizer(reference->parameters(),
                                        torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    step_beside_oracle(group, model, reference, step, loss_of);
    expect_same_gradients(*net, *reference, "step " + std::to_string(step));
    optimizer.step();
    reference_optimizer.step();
  }
}

// Seeds are per thread-shared generator, so modules are made one after the other beforehand.
template <class Net>
std::vector<Net> make_nets(int count) {
  std::vector<Net> nets;
  for (int i = 0; i < count; ++i) nets.push_back(seeded<Net>());
  return nets;
}

auto mixed_loss = [](auto& model, int rank, int step) {
  return model(inputs(rank, step, {kBatch, 6})).square().mean();
};

struct Mode {
  std::string name;
  DataParallelOptions options;
};

const Mode kModes[] = {
    {"plain", {}},
    {"views", {.gradient_as_bucket_view = true}},
    {"tiny buckets", {.bucket_cap_bytes = 64}},
    {"tiny buckets and views", {.gradient_as_bucket_view = true, .bucket_cap_bytes = 64}},
    {"looking for unused parameters", {.find_unused_parameters = true}},
    {"static graph", {.static_graph = true}},
    {"static graph, tiny buckets and views",
     {.static_graph = true, .gradient_as_bucket_view = true, .bucket_cap_bytes = 64}},
    {"batched copies", {.batched_grad_copy = true}},
    {"lazy buckets", {.lazy_bucket_allocation = true}},
    {"lazy buckets, views and batched copies",
     {.gradient_as_bucket_view = true, .batched_grad_copy = true, .lazy_bucket_allocation = true}},
};

// A layer whose result is wrapped in what `Wrap` returns, and another that is left out.
template <class Wrap>
struct Returning : torch::nn::Module {
  explicit Returning(Wrap wrap_) : wrap(wrap_) {
    used = register_module("used", torch::nn::Linear(2, 2));
    unused = register_module("unused", torch::nn::Linear(2, 2));
  }
  auto forward(const torch::Tensor& x) { return wrap(used(x)); }

  Wrap wrap;
  torch::nn::Linear used{nullptr}, unused{nullptr};
};

// Keeps its result.
struct Keeping : torch::nn::Module {
  Keeping() { linear = register_module("linear", torch::nn::Linear(2, 2)); }
  void forward(const torch::Tensor& x) { kept = linear(x); }

  torch::nn::Linear linear{nullptr};
  torch::Tensor kept;
};

}  // namespace

TEST_SUITE("ddp/data_parallel") {
  TEST_CASE("gradients are the mean over the ranks, in every mode and world") {
    for (const Mode& mode : kModes) {
      for (int world_size = 1; world_size <= 4; ++world_size) {
        CAPTURE(mode.name);
        CAPTURE(world_size);
        std::vector<Mixed> nets = make_nets<Mixed>(2 * world_size);
        on_ranks(world_size, [&](ProcessGroup group) {
          auto rank = static_cast<std::size_t>(group.rank());
          train_beside_oracle(group, nets[2 * rank], nets[2 * rank + 1], mode.options, mixed_loss);
        });
      }
    }
  }

  TEST_CASE("parameters in another order in memory take over rank 0's, or are refused") {
    for (const char* backend : {"shm", "gloo"}) {
      for (const bool views : {false, true}) {
        CAPTURE(backend);
        CAPTURE(views);
        auto problems = run_ranks(
            {0, 1}, 2,
            [&](ProcessGroup group) {
              torch::nn::Linear net(5, 5);
              if (group.rank() == 1) {
                net->weight.set_data(net->weight.detach().t().contiguous().t());
              }
              const std::string refusal = problem_of([&] {
                DistributedDataParallel<torch::nn::Linear> refused(net, group,
                                                                   {.init_sync = false});
              });
              expect(refusal ==
                         "the parameters of the ranks differ in memory: weight is of strides [1, "
                         "5] on "
                         "rank 1 and row-major on rank 0; make them alike, or set init_sync",
                     "without init_sync it is refused, not: " + refusal);
              DistributedDataParallel<torch::nn::Linear> model(net, group,
                                                               {.gradient_as_bucket_view = views});
              expect(net->weight.is_contiguous(), "the weight lies as rank 0's");
              torch::Tensor input = torch::arange(1.0, 6.0, torch::kFloat) * (group.rank() + 1);
              torch::Tensor factors = torch::arange(1.0, 6.0, torch::kFloat);
              (model(input) * factors).sum().backward();
              torch::Tensor expected = 1.5 * torch::outer(factors, factors);
              expect(torch::allclose(net->weight.grad(), expected), "the gradient is the mean");
            },
            20s, backend);
        CHECK(problems == std::vector<std::string>{"", ""});
      }
    }
  }

  TEST_CASE("rank 0's channels_last is spread, unless other tensors share the memory") {
    on_ranks(2, [](ProcessGroup group) {
      torch::nn::Conv2d net(torch::nn::Conv2dOptions(3, 4, 2));
      if (group.rank() == 0) {
        net->weight.set_data(net->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
      }
      torch::Tensor shared = group.rank() == 1 ? net->weight.detach() : torch::Tensor();
      const std::string refusal =
          problem_of([&] { DistributedDataParallel<torch::nn::Conv2d> model(net, group); });
      expect(
          refusal ==
              "the parameters of the ranks differ in memory: weight is row-major on rank 1 and of "
              "strides [12, 1, 6, 3] on rank 0, and cannot be changed, since other tensors share "
              "its memory",
          "shared memory is refused, not: " + refusal);
      shared.reset();
      DistributedDataParallel<torch::nn::Conv2d> model(net, group);
      expect(net->weight.is_contiguous(torch::MemoryFormat::ChannelsLast), "it is spread");
    });
  }

  TEST_CASE("init_sync that differs is refused, and so is the layout of lazy buckets") {
    auto problems = run_ranks({0, 1}, 2, [](ProcessGroup group) {
      torch::nn::Linear net(2, 2);
      DistributedDataParallel<torch::nn::Linear> model(net, group,
                                                       {.init_sync = group.rank() == 0});
    });
    CHECK(problems[0] == problems[1]);
    CHECK(problems[0].find("init_sync=0") != std::string::npos);
    on_ranks(1, [](ProcessGroup group) {
      torch::nn::Linear net(2, 2);
      DistributedDataParallel<torch::nn::Linear> model(net, group,
                                                       {.lazy_bucket_allocation = true});
      model(torch::ones({1, 2})).sum().backward();
      expect(problem_of([&] {
               model.bucket_layout();
             }).starts_with("bucket_layout() and lazy_bucket_allocation exclude each other"),
             "it is refused in a sentence");
    });
  }

  TEST_CASE("replicas that have drifted apart are refused, with the first parameter that differs") {
    auto problems = run_ranks(3, [](ProcessGroup group) {
      torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 2));
      DistributedDataParallel<torch::nn::Sequential> model(net, group, {.check_replicas_every = 2});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int step = 1; step <= 6; ++step) {
        model.zero_grad();
        torch::Tensor loss;
        const std::string problem = problem_of([&] { loss = model(torch::ones({1, 3})).sum(); });
        // Drifted in step 3, noticed before forward 4.
        if (!problem.empty()) throw DdpError(problem + " in step " + std::to_string(step));
        loss.backward();
        optimizer.step();
        if (step == 3 && group.rank() > 0) {
          torch::NoGradGuard no_grad;
          net->parameters()[1][2] += 1;
          if (group.rank() == 2) net->parameters()[3][0] += 1;
        }
      }
    });
    for (const std::string& problem : problems) {
      CHECK(problem ==
            "the replicas have drifted apart: 0.bias on ranks 1 and 2 is not that of rank 0 (2 of "
            "4 parameters differ); every rank must change its parameters alike in step 4");
    }
  }

  TEST_CASE("a hash of a parameter knows its bits, and not its strides") {
    torch::Tensor tensor = torch::arange(15.0).reshape({3, 5}).to(torch::kBFloat16);
    torch::Tensor other = tensor.clone();
    CHECK(hash_of(tensor) == hash_of(tensor.t().contiguous().t()));
    other[2][4] += 1;
    CHECK(hash_of(tensor) != hash_of(other));
    CHECK(hash_of(tensor) != hash_of(tensor.slice(0, 0, 2)));
    CHECK(hash_of(torch::zeros({3})) != hash_of(torch::zeros({4})));
    CHECK(hash_of(torch::zeros({0})) == hash_of(torch::zeros({0})));
  }

  TEST_CASE("an optimizer may zero gradients that are views into buckets") {
    for (int i = 0; i < 8; ++i) {
      const bool set_to_none = (i & 1) != 0, is_lazy = (i & 2) != 0, is_static = (i & 4) != 0;
      CAPTURE(set_to_none);
      CAPTURE(is_lazy);
      CAPTURE(is_static);
      on_ranks(2, [&](ProcessGroup group) {
        torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 2));
        DistributedDataParallel<torch::nn::Sequential> model(net, group,
                                                             {.static_graph = is_static,
                                                              .gradient_as_bucket_view = true,
                                                              .bucket_cap_bytes = 16,
                                                              .lazy_bucket_allocation = is_lazy});
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad(set_to_none);
          model.accumulate(step == 2 ? 2 : 1, [&](int) {
            return model(torch::full({1, 3}, group.rank() + 1.0)).sum();
          });
          torch::Tensor gradient = net->parameters()[3].grad();
          expect(torch::equal(gradient, torch::ones({2})), "the gradient is the mean");
          optimizer.step();
        }
      });
    }
  }

  TEST_CASE("device_ids is the module's device, and inputs are moved there") {
    auto with = [](const std::function<std::vector<at::Device>(int rank)>& device_ids) {
      return run_ranks(2, [&](ProcessGroup group) {
        torch::nn::Linear net(3, 2);
        DDP<torch::nn::Linear> model(net, group, {.device_ids = device_ids(group.rank())});
        model(torch::ones({1, 3})).sum().backward();
        expect(problem_of([&] {
                 model(torch::ones({1, 3}, torch::kMeta));
               }) == "",
               "an input from elsewhere is not refused by us");
      });
    };
    for (const std::string& problem : with([](int) { return std::vector<at::Device>{at::kCPU}; }))
      CHECK(problem.starts_with("Cannot copy out of meta tensor"));
    const std::string said =
        "device_ids of rank 1: weight is on cpu, and not on meta: move the module there before it "
        "is wrapped";
    CHECK(with([](int rank) {
            return std::vector<at::Device>{rank == 0 ? at::kCPU : at::kMeta};
          }) == std::vector<std::string>{said, said});
    const std::string two =
        "device_ids has 2 devices: give the one of the module, or none if it is on several";
    CHECK(with([](int) { return std::vector<at::Device>(2, at::kCPU); }) ==
          std::vector<std::string>{two, two});
    CHECK(with([](int rank) {
            return std::vector<at::Device>(rank == 0 ? std::size_t{1} : 0, at::kCPU);
          })[0]
              .find("device_ids=1") != std::string::npos);
  }

  TEST_CASE("a wrapped module is saved under Python's names, and loaded into another") {
    const auto path = std::filesystem::temp_directory_path() /
                      ("ddprun-wrapped-" + std::to_string(::getpid()) + ".pt");
    on_ranks(2, [&](ProcessGroup group) {
      torch::nn::Linear net(3, 2), other(3, 2);
      DDP<torch::nn::Linear> model(net, group), loaded(other, group);
      if (group.rank() == 0) save_tensors(path, model_tensors(model), TensorFormat::Pt);
      group.barrier();
      expect(load_tensors(path).begin()->first == "module.bias", "the names begin as Python's do");
      load_model(loaded, path);
      expect(torch::equal(net->weight, other->weight), "the values are the same");
      group.barrier();
    });
    std::filesystem::remove(path);
  }

  TEST_CASE("a rank of weight 0 adds nothing, though its loss or its gradients are NaN") {
    on_ranks(2, [](ProcessGroup group) {
      torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
      DistributedDataParallel<torch::nn::Linear> model(net, group);
      const double kNan = std::numeric_limits<double>::quiet_NaN();
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        const bool is_left_over = group.rank() == 1 && step != 1;
        torch::Tensor input = torch::full({1, 1}, is_left_over ? kNan : 3.0);
        const double weight = step == 1 ? 1 : (is_left_over ? 0 : 2);
        torch::Tensor loss = model.weighted(model(input).sum(), weight);
        loss.backward();
        expect(!is_left_over || loss.item<float>() == 0, "the loss counts as 0");
        expect(net->weight.grad().item<float>() == 3, "the gradient is that of the other rank");
      }
    });
  }

  TEST_CASE("a weight of 0 mutes its own loss, and not those that are added to it") {
    for (const Mode& mode : kModes) {
      CAPTURE(mode.name);
      on_ranks(2, [&](ProcessGroup group) {
        torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
        DistributedDataParallel<torch::nn::Linear> model(net, group, mode.options);
        for (int muted = 0; muted < 3; ++muted) {
          model.zero_grad();
          const torch::Tensor outputs = model(torch::tensor({1.F, 2.F, 4.F}).view({3, 1}));
          torch::Tensor total = torch::zeros({});
          for (int part = 0; part < 3; ++part) {
            const bool is_muted = group.rank() == 1 && part == muted;
            total = total + model.weighted(outputs[part].sum(), is_muted ? 0 : 1);
          }
          total.backward();
          const float expected = 7 - static_cast<float>(1 << muted) / 2;
          expect(net->weight.grad().item<float>() == expected,
                 "part " + std::to_string(muted) + " alone is muted");
        }
      });
    }
  }

  TEST_CASE("losses of several forwards are added up, some with weight 0") {
    on_ranks(2, [](ProcessGroup group) {
      torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
      DistributedDataParallel<torch::nn::Linear> model(net, group);
      const float kNan = std::numeric_limits<float>::quiet_NaN();
      for (int muted = 0; muted < 3; ++muted) {
        model.zero_grad();
        torch::Tensor total = torch::zeros({});
        for (int part = 0; part < 3; ++part) {
          const bool is_muted = group.rank() == 1 && part == muted;
          const torch::Tensor input = torch::full({1, 1}, is_muted ? kNan : 1.F);
          total = total + model.weighted(model(input).sum(), is_muted ? 0 : 1);
        }
        total.backward();
        expect(net->weight.grad().item<float>() == 2.5F, "the gradient is the mean of 3 and 2");
      }
    });
  }

  TEST_CASE("a weight of 0 reaches through functions of the program, and to sparse gradients") {
    // Multiplies what comes back by what went in.
    struct Square : torch::autograd::Function<Square> {
      static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
        context->save_for_backward({x});
        return x * x;
      }
      static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                     torch::autograd::variable_list gradients) {
        return {2 * context->get_saved_variables()[0] * gradients[0]};
      }
    };
    struct Net : torch::nn::Module {
      Net() {
        table = register_module(
            "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true)));
        layer = register_module("layer", torch::nn::Linear(torch::nn::LinearOptions(1, 1)));
        torch::NoGradGuard no_grad;
        table->weight.fill_(1);
        layer->weight.fill_(2);
        layer->bias.fill_(0);
      }
      torch::Tensor forward(const torch::Tensor& index, double factor) {
        return Square::apply(layer(table(index)) * factor);
      }
      torch::nn::Embedding table{nullptr};
      torch::nn::Linear layer{nullptr};
    };
    on_ranks(2, [](ProcessGroup group) {
      auto net = std::make_shared<Net>();
      DistributedDataParallel<std::shared_ptr<Net>> model(net, group);
      const double kNan = std::numeric_limits<double>::quiet_NaN();
      for (int step = 0; step < 2; ++step) {
        model.zero_grad();
        const bool is_muted = group.rank() == 1;
        const torch::Tensor output = model(torch::tensor({1}, torch::kLong), is_muted ? kNan : 1);
        model.weighted(output.sum(), is_muted ? 0 : 2).backward();
        expect(net->layer->weight.grad().item<float>() == 4, "the gradient of the layer");
        expect(torch::equal(net->table->weight.grad().to_dense().view({4}),
                            torch::tensor({0.F, 8.F, 0.F, 0.F})),
               "and that of the table");
      }
    });
  }

  TEST_CASE("a weight of 0 ends with the wrapper") {
    on_ranks(2, [](ProcessGroup group) {
      torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
      {
        DistributedDataParallel<torch::nn::Linear> model(net, group);
        const double weight = group.rank() == 1 ? 0 : 2;
        model.weighted(model(torch::ones({1, 1})).sum(), weight).backward();
      }
      net->zero_grad();
      DistributedDataParallel<torch::nn::Linear> model(net, group);
      model(torch::full({1, 1}, 3.0)).sum().backward();
      expect(net->weight.grad().item<float>() == 3, "the gradient is the mean");
    });
  }

  TEST_CASE("numbers that mean nothing are refused") {
    on_ranks(2, [](ProcessGroup group) {
      const std::string of_cap = problem_of([&] {
        DDP<torch::nn::Linear> model(torch::nn::Linear(1, 1), group, {.bucket_cap_bytes = -1});
      });
      expect(of_cap == "bucket_cap_bytes is -1, and must be 0 (the default sizes) or more", of_cap);
      DDP<torch::nn::Linear> model(torch::nn::Linear(1, 1), group);
      const std::string of_weight =
          problem_of([&] { model.weighted(torch::ones({}), std::nan("")); });
      expect(of_weight == "the weight of a loss is nan, which is no number", of_weight);
    });
  }

  TEST_CASE("after a backward that threw in the middle the next step says so") {
    on_ranks(1, [](ProcessGroup group) {
      Mixed net;
      DistributedDataParallel<Mixed> model(net, group);
      net->first->weight.register_hook(
          [](const torch::Tensor&) -> torch::Tensor { throw Unexpected("no memory"); });
      torch::Tensor loss = mixed_loss(model, 0, 0);
      bool has_thrown = false;
      try {
        loss.backward();
      } catch (const Unexpected&) {
        has_thrown = true;
      }
      expect(has_thrown, "it throws");
      const std::string problem = problem_of([&] { mixed_loss(model, 0, 1); });
      expect(problem.starts_with("the last backward() of this rank has thrown in the middle"),
             problem);
    });
  }

  TEST_CASE("compression is refused for complex parameters, whose imaginary part it would drop") {
    struct ComplexNet : torch::nn::Module {
      ComplexNet() {
        weight = register_parameter("weight", torch::ones({2}, torch::kComplexFloat));
      }
      torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
      torch::Tensor weight;
    };
    on_ranks(2, [](ProcessGroup group) {
      for (Compression compression : {Compression::Float16, Compression::BFloat16}) {
        expect(problem_of([&] {
                 DistributedDataParallel<std::shared_ptr<ComplexNet>> model(
                     std::make_shared<ComplexNet>(), group, {.compression = compression});
               }) ==
                   "compression would drop the imaginary part of the gradients of weight, which is "
                   "complex",
               "it is refused");
      }
    });
  }

  TEST_CASE("sync_buffers gives every rank rank 0's") {
    on_ranks(2, [](ProcessGroup group) {
      torch::nn::BatchNorm1d net(3);
      DistributedDataParallel<torch::nn::BatchNorm1d> model(net, group);
      model(torch::randn({4, 3}) + group.rank()).sum().backward();
      model.sync_buffers();
      std::vector<torch::Tensor> all = group.all_gather(net->running_mean);
      expect(torch::equal(all[0], all[1]), "the running means are equal");
    });
  }

  TEST_CASE("a weight under two names is reduced once") {
    std::vector<Tied> nets = make_nets<Tied>(4);
    on_ranks(2, [&](ProcessGroup group) {
      auto rank = static_cast<std::size_t>(group.rank());
      train_beside_oracle(group, nets[2 * rank], nets[2 * rank + 1], {}, mixed_loss);
    });
  }

  TEST_CASE("two ranks with half the batch each learn what one learns with all of it") {
    std::vector<Mixed> nets = make_nets<Mixed>(3);
    on_ranks(2, [&](ProcessGroup group) {
      Mixed& net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel<Mixed> model(net, group);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int step = 0; step < kSteps; ++step) {
        model.zero_grad();
        mixed_loss(model, group.rank(), step).backward();
        optimizer.step();
      }
    });
    torch::optim::SGD optimizer(nets[2]->parameters(), 0.1);
    for (int step = 0; step < kSteps; ++step) {
      nets[2]->zero_grad();
      torch::Tensor batch =
          torch::cat({inputs(0, step, {kBatch, 6}), inputs(1, step, {kBatch, 6})});
      nets[2](batch).square().mean().backward();
      optimizer.step();
    }
    for (const auto& item : nets[2]->named_parameters()) {
      CAPTURE(item.key());
      CHECK(torch::equal(nets[0]->named_parameters()[item.key()],
                         nets[1]->named_parameters()[item.key()]));
      CHECK(torch::allclose(nets[0]->named_parameters()[item.key()], item.value(), 1e-5, 1e-6));
    }
  }

  TEST_CASE("every rank starts with rank 0's parameters and buffers") {
    std::vector<Normalised> nets;
    for (int rank = 0; rank < 3; ++rank) {
      torch::manual_seed(static_cast<std::uint64_t>(rank));
      nets.emplace_back();
      nets.back()->norm->running_mean.fill_(rank);
    }
    std::vector<torch::Tensor> expected;
    for (const torch::Tensor& tensor : nets[0]->parameters()) expected.push_back(tensor.clone());
    on_ranks(3, [&](ProcessGroup group) {
      DistributedDataParallel<Normalised> model(nets[static_cast<std::size_t>(group.rank())],
                                                group);
    });
    for (Normalised& net : nets) {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(torch::equal(net->parameters()[i], expected[i]));
      }
      CHECK(torch::equal(net->norm->running_mean, torch::zeros({4})));
    }
  }

  TEST_CASE("buffers are rank 0's before each forward, unless that is turned off") {
    for (bool broadcast_buffers : {true, false}) {
      std::vector<Normalised> nets = make_nets<Normalised>(2);
      on_ranks(2, [&](ProcessGroup group) {
        Normalised& net = nets[static_cast<std::size_t>(group.rank())];
        DistributedDataParallel<Normalised> model(net, group,
                                                  {.broadcast_buffers = broadcast_buffers});
        net->norm->options.momentum(0.0);  // a forward leaves the running statistics alone
        net->norm->running_mean.fill_(group.rank() + 5);
        model(inputs(group.rank(), 0, {kBatch, 1, 4, 4})).sum().backward();
      });
      CHECK(nets[0]->norm->running_mean[0].item<float>() == 5);
      CHECK(nets[1]->norm->running_mean[0].item<float>() == (broadcast_buffers ? 5 : 6));
    }
  }

  TEST_CASE("inside no_sync gradients add up locally, and the next backward reduces the sum") {
    for (const Mode& mode : kModes) {
      CAPTURE(mode.name);
      std::vector<Mixed> nets = make_nets<Mixed>(4);
      on_ranks(2, [&](ProcessGroup group) {
        auto rank = static_cast<std::size_t>(group.rank());
        Mixed net = nets[2 * rank], reference = nets[2 * rank + 1];
        DistributedDataParallel<Mixed> model(net, group, mode.options);
        for (int step = 0; step < 6; step += 3) {
          model.zero_grad();
          reference->zero_grad();
          {
            auto guard = model.no_sync();
            mixed_loss(model, group.rank(), step).backward();
            mixed_loss(model, group.rank(), step + 1).backward();
          }
          mixed_loss(reference, group.rank(), step).backward();
          mixed_loss(reference, group.rank(), step + 1).backward();
          expect_same_gradients(*net, *reference, "no_sync");
          mixed_loss(model, group.rank(), step + 2).backward();
          mixed_loss(reference, group.rank(), step + 2).backward();
          average_gradients(group, *reference);
          expect_same_gradients(*net, *reference, "the backward after no_sync");
        }
      });
    }
  }

  TEST_CASE("a branch that no rank takes keeps no gradient; one that some take is averaged") {
    for (bool views : {false, true}) {
      std::vector<Branching> nets = make_nets<Branching>(4);
      on_ranks(2, [&](ProcessGroup group) {
        auto rank = static_cast<std::size_t>(group.rank());
        Branching net = nets[2 * rank], reference = nets[2 * rank + 1];
        DistributedDataParallel<Branching> model(
            net, group, {.find_unused_parameters = true, .gradient_as_bucket_view = views});
        for (int step = 0; step < 4; ++step) {
          model.zero_grad();
          reference->zero_grad();
          // Both left, then left and right: which parameters get a gradient changes.
          bool go_left = step % 2 == 0 || group.rank() == 0;
          torch::Tensor x = inputs(group.rank(), step, {kBatch, 6});
          model(x, go_left)["main"].square().mean().backward();
          reference(x, go_left)["main"].square().mean().backward();
          // What another rank alone has used counts as zero here.
          for (torch::nn::Linear part : {reference->left, reference->right}) {
            bool is_used_somewhere = part.get() == reference->left.get() || step % 2 == 1;
            for (torch::Tensor& parameter : part->parameters()) {
              if (is_used_somewhere && !parameter.grad().defined()) {
                parameter.mutable_grad() = torch::zeros_like(parameter);
              }
            }
          }
          average_gradients(group, *reference);
          expect_same_gradients(*net, *reference, "step " + std::to_string(step));
          expect(!net->never->weight.grad().defined(), "what is never used has no gradient");
        }
      });
    }
  }

  TEST_CASE("an output that is not part of the loss is as good as unused") {
    std::vector<Branching> nets = make_nets<Branching>(2);
    on_ranks(2, [&](ProcessGroup group) {
      Branching& net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel<Branching> model(net, group, {.find_unused_parameters = true});
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        model(inputs(group.rank(), step, {kBatch, 6}), true)["hidden"].sum().backward();
        expect(net->stem->weight.grad().defined(), "the stem is used");
        expect(!net->left->weight.grad().defined(), "the branch behind the other output is not");
      }
    });
  }

  TEST_CASE("outputs are found in whatever LibTorch returns them in") {
    auto sum_of = [](auto& output) {
      at::Tensor sum = at::zeros({});
      ddprun::ddp::visit_tensors(output, [&](at::Tensor& tensor) { sum = sum + tensor.sum(); });
      return sum;
    };
    auto check = [&](auto wrap) {
      on_ranks(2, [&](ProcessGroup group) {
        auto net = std::make_shared<Returning<decltype(wrap)>>(wrap);
        DistributedDataParallel model(net, group, {.find_unused_parameters = true});
        torch::Tensor x = torch::full({3, 2}, group.rank() + 1.0);
        for (int step = 0; step < 2; ++step) {
          model.zero_grad();
          auto output = model(x);
          sum_of(output).backward();
          expect(torch::equal(net->used->weight.grad(), torch::full({2, 2}, 4.5)),
                 "the mean of 3 and 6");
          expect(!net->unused->weight.grad().defined(), "what is unused is found");
        }
      });
    };
    check([](const torch::Tensor& y) { return std::array<torch::Tensor, 2>{y, y.detach()}; });
    check([](const torch::Tensor& y) {
      return torch::OrderedDict<std::string, torch::Tensor>({{"y", y}, {"none", torch::Tensor()}});
    });
    check([](const torch::Tensor& y) {
      return torch::nn::utils::rnn::pack_padded_sequence(y.unsqueeze(0), torch::tensor({3}), true);
    });
    check([](const torch::Tensor& y) {
      return std::optional(std::pair(1, std::vector<std::array<torch::Tensor, 1>>{{y}}));
    });
  }

  TEST_CASE("what is ignored stays each rank's own") {
    on_ranks(2, [&](ProcessGroup group) {
      const double own = group.rank() + 1.0;
      torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3),
                                torch::nn::Linear(3, group.rank() + 1));  // not of one shape
      for (torch::Tensor& tensor : net->parameters()) tensor.data().fill_(own);
      DistributedDataParallel model(
          net, group,
          {.ignored = {"2.weight", "2.bias", "1.running_mean"}, .check_replicas_every = 1});
      for (int step = 0; step < 2; ++step) {
        model.zero_grad();
        model(inputs(group.rank(), step, {kBatch, 2})).sum().backward();
        torch::Tensor gradient = net[0]->as<torch::nn::Linear>()->weight.grad().clone();
        std::vector<torch::Tensor> all = group.all_gather(gradient);
        expect(torch::equal(all[0], all[1]), "gradients that are not ignored are reduced");
      }
      expect(net[0]->as<torch::nn::Linear>()->weight.allclose(torch::ones({3, 2})), "rank 0's");
      expect(net[2]->as<torch::nn::Linear>()->weight.mean().item<double>() == own, "its own");
      // Each rank's own sum over its own samples.
      expect(net[2]->as<torch::nn::Linear>()->bias.grad()[0].item<double>() == kBatch,
             "not averaged");
      std::vector<torch::Tensor> means =
          group.all_gather(net[1]->as<torch::nn::BatchNorm1d>()->running_mean);
      expect(!torch::equal(means[0], means[1]), "its own statistics");
      const double norm = model.clip_grad_norm(1e9);
      expect(group.all_gather(torch::full({1}, norm))[0].item<double>() ==
                 group.all_gather(torch::full({1}, norm))[1].item<double>(),
             "all clip alike");
    });
    CHECK(problem_of([] {
            StoreHost host;
            ProcessGroup group = init_process_group({}, env_of(0, 1, host.port()));
            DistributedDataParallel model(torch::nn::Sequential(torch::nn::Linear(1, 1)), group,
                                          {.ignored = {"0.weight", "0.weights"}});
          }) ==
          "ignored: the module has no parameter and no buffer '0.weights'; names are those of "
          "named_parameters() and named_buffers()");
  }

  TEST_CASE("a forward may return nothing") {
    on_ranks(2, [&](ProcessGroup group) {
      auto net = std::make_shared<Keeping>();
      DistributedDataParallel model(net, group);
      for (int step = 0; step < 2; ++step) {
        model.zero_grad();
        model(torch::full({3, 2}, group.rank() + 1.0));
        net->kept.sum().backward();
        expect(torch::equal(net->linear->weight.grad(), torch::full({2, 2}, 4.5)),
               "the mean of 3 and 6");
      }
    });
  }

  TEST_CASE("in a static graph what is left out needs no search") {
    std::vector<Branching> nets = make_nets<Branching>(4);
    on_ranks(2, [&](ProcessGroup group) {
      auto rank = static_cast<std::size_t>(group.rank());
      auto loss = [](auto& model, int from, int step) {
        return model(inputs(from, step, {kBatch, 6}), true)["main"].square().mean();
      };
      train_beside_oracle(group, nets[2 * rank], nets[2 * rank + 1],
                          DataParallelOptions{.static_graph = true}, loss);
      expect(!nets[2 * rank]->never->weight.grad().defined(), "what is unused has no gradient");
    });
  }

  TEST_CASE("a static graph is learned anew where its first backward has failed") {
    for (const bool views : {false, true}) {
      for (const bool in_the_middle : {false, true}) {
        CAPTURE(views);
        CAPTURE(in_the_middle);
        std::vector<Mixed> nets = make_nets<Mixed>(4);
        on_ranks(2, [&](ProcessGroup group) {
          auto rank = static_cast<std::size_t>(group.rank());
          Mixed net = nets[2 * rank];
          DistributedDataParallel<Mixed> model(
              net, group, {.static_graph = true, .gradient_as_bucket_view = views});
          torch::Tensor output = model(inputs(group.rank(), 0, {kBatch, 6}));
          // The last layer's gradients come first.
          torch::Tensor failing = in_the_middle ? net->first->weight : output;
          const unsigned hook = failing.register_hook(
              [](const torch::Tensor&) -> torch::Tensor { throw Unexpected("no memory"); });
          for (const char* problem : {"no memory", "backward() of a static graph"}) {
            std::string thrown;
            try {
              output.sum().backward({}, /*retain_graph=*/true);
            } catch (const std::exception& error) {
              thrown = error.what();
            }
            expect(thrown.starts_with(problem), "it says " + std::string(problem) + ": " + thrown);
          }
          failing.remove_hook(hook);
          steps_beside_oracle(group, model, net, nets[2 * rank + 1], 3, mixed_loss);
        });
      }
    }
  }

  TEST_CASE("a backward that comes after the reduction is refused, and does not stay local") {
    for (const Mode& mode : kModes) {
      CAPTURE(mode.name);
      std::vector<Mixed> nets = make_nets<Mixed>(4);
      on_ranks(2, [&](ProcessGroup group) {
        auto rank = static_cast<std::size_t>(group.rank());
        Mixed net = nets[2 * rank], reference = nets[2 * rank + 1];
        DistributedDataParallel<Mixed> model(net, group, mode.options);
        constexpr std::string_view kRefused = "backward() was called again after the gradients";
        for (const bool is_of_one_forward : {false, true}) {
          torch::Tensor first = mixed_loss(model, group.rank(), 0);
          torch::Tensor second = is_of_one_forward ? first : mixed_loss(model, group.rank(), 1);
          first.backward({}, /*retain_graph=*/true);
          const std::string problem = problem_of([&] { second.backward(); });
          expect(problem.starts_with(kRefused), "it says so: " + problem);
        }
        step_beside_oracle(group, model, reference, 2, mixed_loss);
        expect_same_gradients(*net, *reference, "the step after it");
      });
    }
  }

  TEST_CASE("after a refused backward, no_sync gathers as ever") {
    on_ranks(2, [](ProcessGroup group) {
      Mixed net;
      DistributedDataParallel<Mixed> model(net, group);
      torch::Tensor loss = mixed_loss(model, group.rank(), 0);
      loss.backward({}, /*retain_graph=*/true);
      expect(!problem_of([&] { loss.backward(); }).empty(), "it is refused");
      mixed_loss(net, group.rank(), 0).backward();  // of the bare module: the program's own affair
      {
        auto alone = model.no_sync();
        mixed_loss(model, group.rank(), 1).backward();
      }
      model.zero_grad();
      mixed_loss(model, group.rank(), 2).backward();
    });
  }

  TEST_CASE("a backward in no_sync takes the reduction of a forward before it, and that is said") {
    on_ranks(2, [](ProcessGroup group) {
      DistributedDataParallel<Mixed> model(Mixed(), group);
      torch::Tensor synced = mixed_loss(model, group.rank(), 0);
      torch::Tensor own;
      {
        auto alone = model.no_sync();
        own = mixed_loss(model, group.rank(), 1);
      }
      own.backward();
      const std::string problem = problem_of([&] { synced.backward(); });
      expect(problem.starts_with("backward() was called again"), problem);
    });
  }

  TEST_CASE("a static graph may have a penalty on its parameters, with a backward of its own") {
    std::vector<Mixed> nets = make_nets<Mixed>(4);
    on_ranks(2, [&](ProcessGroup group) {
      auto rank = static_cast<std::size_t>(group.rank());
      Mixed net = nets[2 * rank], reference = nets[2 * rank + 1];
      DistributedDataParallel<Mixed> model(net, group, {.static_graph = true});
      auto penalty = [](Mixed& of) {
        torch::Tensor sum = torch::zeros({});
        for (const torch::Tensor& parameter : of->parameters()) {
          if (parameter.requires_grad()) sum = sum + parameter.square().sum().to(torch::kFloat);
        }
        return 0.01 * sum;
      };
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        reference->zero_grad();
        torch::Tensor loss = mixed_loss(model, group.rank(), step);
        penalty(net).backward();
        loss.backward();
        penalty(reference).backward();
        mixed_loss(reference, group.rank(), step).backward();
        average_gradients(group, *reference);
        expect_same_gradients(*net, *reference, "step " + std::to_string(step));
      }
    });
  }

  TEST_CASE("a static graph is not learned from what the bare module did before") {
    std::vector<Mixed> nets = make_nets<Mixed>(4);
    on_ranks(2, [&](ProcessGroup group) {
      auto rank = static_cast<std::size_t>(group.rank());
      Mixed net = nets[2 * rank], reference = nets[2 * rank + 1];
      DistributedDataParallel<Mixed> model(net, group, {.static_graph = true});
      mixed_loss(net, group.rank(), 7).backward();
      steps_beside_oracle(group, model, net, reference, 3, mixed_loss);
    });
  }

  TEST_CASE("autograd::grad() counts as no backward pass") {
    for (const Mode& mode : kModes) {
      CAPTURE(mode.name);
      std::vector<Mixed> nets = make_nets<Mixed>(4);
      on_ranks(2, [&](ProcessGroup group) {
        auto rank = static_cast<std::size_t>(group.rank());
        auto with_penalty = [](auto& model, int from, int step) {
          torch::Tensor x = inputs(from, step, {kBatch, 6}).requires_grad_();
          torch::Tensor output = model(x);
          torch::Tensor slope = torch::autograd::grad({output.sum()}, {x}, {}, true, true)[0];
          return output.square().mean() + slope.square().sum();
        };
        train_beside_oracle(group, nets[2 * rank], nets[2 * rank + 1], mode.options, with_penalty);
      });
    }
  }

  TEST_CASE("compressed gradients are near the mean, and the same on all ranks") {
    for (auto [compression, precision] :
         {std::pair(Compression::Float16, 2e-3), std::pair(Compression::BFloat16, 2e-2)}) {
      CAPTURE(precision);
      std::vector<Mixed> nets = make_nets<Mixed>(4);
      on_ranks(2, [&, compression = compression, precision = precision](ProcessGroup group) {
        auto rank = static_cast<std::size_t>(group.rank());
        Mixed net = nets[2 * rank], reference = nets[2 * rank + 1];
        DistributedDataParallel<Mixed> model(net, group, {.compression = compression});
        for (int step = 0; step < 3; ++step) {
          step_beside_oracle(group, model, reference, step, mixed_loss);
          torch::Tensor here = net->wide->weight.grad(), there = reference->wide->weight.grad();
          double error =
              (here - there).abs().max().item<double>() / there.abs().max().item<double>();
          expect(error < precision, "the error is small: " + std::to_string(error));
          expect(error > 0, "the gradients really were compressed");
        }
      });
      CHECK(torch::equal(nets[0]->last->weight.grad(), nets[2]->last->weight.grad()));
    }
  }

  TEST_CASE("a hook of the user's reduces every bucket") {
    std::vector<Mixed> nets = make_nets<Mixed>(4);
    on_ranks(2, [&](ProcessGroup group) {
      auto rank = static_cast<std::size_t>(group.rank());
      int calls = 0;
      CommHook hook = [&calls](ProcessGroup& ranks, c10d::GradBucket& bucket) {
        ++calls;
        std::vector<at::Tensor> sent{bucket.getBufferRef().div_(ranks.world_size())};
        return ranks.c10d()->allreduce(sent)->getFuture();
      };
      train_beside_oracle(group, nets[2 * rank], nets[2 * rank + 1],
                          DataParallelOptions{.comm_hook = hook}, mixed_loss);
      expect(calls == 2 * kSteps, "it is called for each dtype's bucket in each step");
      try {
        DistributedDataParallel<Mixed> both(
            nets[2 * rank], group, {.compression = Compression::Float16, .comm_hook = hook});
        expect(false, "a hook and a compression are refused");
      } catch (const DdpError& error) {
        expect(std::string(error.what()).starts_with("comm_hook and compression exclude"), "so");
      }
    });
  }

  TEST_CASE("a hook that returns no future is an error of the backward pass") {
    on_ranks(2, [](ProcessGroup group) {
      CommHook hook = [](ProcessGroup&, c10d::GradBucket&) {
        return c10::intrusive_ptr<c10::ivalue::Future>();
      };
      DistributedDataParallel<torch::nn::Linear> model(torch::nn::Linear(2, 1), group,
                                                       {.comm_hook = hook});
      const std::string problem = problem_of([&] { model(torch::ones({1, 2})).sum().backward(); });
      expect(problem == "the comm_hook has returned no future for a bucket of gradients",
             "it says what is wrong");
    });
  }

  TEST_CASE("the wrapper is a module, of which the wrapped one is a part") {
    on_ranks(2, [](ProcessGroup group) {
      Normalised net;
      DDP<Normalised> model(net, group);

      std::vector<std::string> names;
      for (const auto& item : net->named_parameters()) names.push_back("module." + item.key());
      expect(model.named_parameters().keys() == names, "parameters have their names, as in Python");
      const std::vector<torch::Tensor> parameters = model.parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        expect(parameters[i].is_same(net->parameters()[i]), "they are the module's own");
      }
      expect(model.buffers().size() == 3 && model.children().size() == 1, "and so is the rest");

      model.eval();
      expect(!model.is_training() && !net->norm->is_training(), "eval() reaches the parts");
      const torch::Tensor mean = net->norm->running_mean.clone();
      model(inputs(group.rank(), 0, {4, 1, 4, 4}));
      expect(torch::equal(net->norm->running_mean, mean), "nothing is counted in eval()");
      model.train();
      expect(model.is_training() && net->norm->is_training(), "and so does train()");
      model(inputs(group.rank(), 0, {4, 1, 4, 4})).sum().backward();
      expect(!torch::equal(net->norm->running_mean, mean), "in train() it is");
      model.zero_grad();
      expect(!net->out->weight.grad().defined(), "zero_grad() is the wrapper's");

      std::ostringstream words;
      words << model;
      expect(words.str().starts_with("DistributedDataParallel(\n  (module): ") &&
                 words.str().find("    (norm): torch::nn::BatchNorm2d(4, ") != std::string::npos,
             "it prints what is in it");
    });
  }

  TEST_CASE("a wrapped module takes over the mode of each of its parts") {
    on_ranks(2, [](ProcessGroup group) {
      Normalised net;
      net->norm->eval();
      DDP<Normalised> model(net, group);
      expect(model.is_training() && !net->norm->is_training(), "a part in eval() stays there");
      net->eval();
      net->conv->train();
      DDP<Normalised> second(net, group);
      expect(!second.is_training() && net->conv->is_training(), "a part in train() as well");
    });
  }

  TEST_CASE("a wrapped module is a part of another one, and is saved with it") {
    struct Outer : torch::nn::Module {
      Outer(Mixed net, ProcessGroup group)
          : body(register_module("body", std::make_shared<DDP<Mixed>>(net, group))),
            scale(register_parameter("scale", torch::ones({1}))) {}
      std::shared_ptr<DDP<Mixed>> body;
      torch::Tensor scale;
    };
    on_ranks(2, [](ProcessGroup group) {
      auto outer = std::make_shared<Outer>(Mixed(), group);
      expect(outer->named_parameters().contains("body.module.first.weight"), "its names go on");
      outer->eval();
      expect(!outer->body->module()->first->is_training(), "modes come down");
      outer->to(torch::kCPU);  // nothing moves
      const std::string refusal = problem_of([&] { outer->to(torch::kDouble); });
      expect(refusal ==
                 "to() would make Double of first.weight, which is Float on cpu: call it before "
                 "the module is wrapped",
             "a move is refused, and not: " + refusal);

      std::stringstream file;
      torch::save(outer, file);
      auto other = std::make_shared<Outer>(Mixed(), group);
      torch::load(other, file);
      for (const auto& item : outer->named_parameters()) {
        expect(torch::equal(other->named_parameters()[item.key()], item.value()),
               item.key() + " comes back");
      }
    });
  }

  TEST_CASE("a wrapped module is not moved or cloned") {
    on_ranks(1, [](ProcessGroup group) {
      DDP<Mixed> model(Mixed(), group);
      expect(problem_of([&] {
               model.to(torch::kDouble);
             }).starts_with("to() would make Double of first.weight, which is Float on cpu"),
             "another dtype is refused");
      expect(problem_of([&] {
               model.to(torch::Device(torch::kMeta));
             }).starts_with("to() would make meta of first.weight"),
             "and another device");
      expect(problem_of([&] {
               model.to(torch::Device(torch::kMeta), torch::kFloat);
             }).starts_with("to() would make Float on meta of first.weight"),
             "and both");
      model.to(torch::kCPU);
      expect(model.module()->first->weight.is_cpu() &&
                 model.module()->first->weight.scalar_type() == torch::kFloat,
             "nothing has moved");
      expect(problem_of([&] { model.clone(); }).starts_with("a wrapped module cannot be cloned"),
             "nor is it cloned");
    });
  }

  TEST_CASE("what converts floating-point tensors leaves the integers of a wrapped module") {
    on_ranks(1, [](ProcessGroup group) {
      DDP<Normalised> model(Normalised(), group);
      model.to(torch::kFloat);
      model.to(torch::kCPU, torch::kFloat);
      const std::string refusal = problem_of([&] { model.to(torch::kDouble); });
      expect(refusal.starts_with("to() would make Double of conv.weight, which is Float on cpu"),
             refusal);
      expect(!problem_of([&] { model.to(torch::kLong); }).empty(), "to integers none is converted");
    });
  }

  TEST_CASE("a parameter that is not as it was wrapped any more is named") {
    on_ranks(2, [](ProcessGroup group) {
      auto problem = [&](const std::function<void(Mixed&)>& change, torch::ScalarType dtype) {
        Mixed net;
        DDP<Mixed> model(net, group);
        change(net);
        return problem_of([&] {
                 torch::NoGradGuard no_grad;
                 model(inputs(group.rank(), 0, {kBatch, 6}).to(dtype));
               }) +
               problem_of([&] {
                 model(inputs(group.rank(), 0, {kBatch, 6}).to(dtype));
               });
      };
      const std::string tail =
          ": its gradients would stay on this rank. Call to() and requires_grad_() before the "
          "module is wrapped, or wrap it anew on all ranks";
      std::string said = problem(
          [](Mixed& net) {
            net->first->to(torch::kDouble);
            net->frozen->to(torch::kDouble);
            net->wide->to(torch::kDouble);
          },
          torch::kDouble);
      expect(said ==
                 "the parameter first.weight was Float on cpu when the module was wrapped, and "
                 "is Double on cpu" +
                     tail,
             said);
      said = problem(
          [](Mixed& net) {
            net->wide->to(torch::kDouble);
            net->wide->to(torch::kFloat);
          },
          torch::kFloat);
      expect(said == "the parameter wide.weight was converted after the module was wrapped" + tail,
             said);
      said = problem([](Mixed& net) { net->frozen->weight.requires_grad_(); }, torch::kFloat);
      expect(said ==
                 "the parameter frozen.weight needed no gradient when the module was wrapped, "
                 "and needs one now" +
                     tail,
             said);
      expect(problem([](Mixed&) {}, torch::kFloat).empty(), "one that stays is used");
    });
  }

  TEST_CASE("no_sync() is moved to where it is to end") {
    on_ranks(2, [](ProcessGroup group) {
      torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
      DDP<torch::nn::Linear> model(net, group);
      for (int pass = 0; pass < 3; ++pass) {
        std::optional<NoSync> guard;
        if (pass < 2) guard.emplace(model.no_sync());
        if (pass == 1) {
          NoSync inner = std::move(*guard);
          guard.emplace(model.no_sync());
          guard.emplace(std::move(inner));
        }
        model(torch::full({1, 1}, group.rank() + 1.0)).sum().backward();
        const float here = static_cast<float>(pass + 1) * static_cast<float>(group.rank() + 1);
        expect(net->weight.grad().item<float>() == (pass < 2 ? here : 4.5F),
               "only the last pass is reduced");
      }
    });
  }

  TEST_CASE("modules that differ end on all ranks with the same sentence") {
    auto sentence_of = [](const std::function<torch::nn::Sequential(int rank)>& make,
                          const std::function<DataParallelOptions(int rank)>& options) {
      std::vector<torch::nn::Sequential> nets;
      for (int rank = 0; rank < 3; ++rank) nets.push_back(make(rank));
      std::vector<std::string> problems = run_ranks(3, [&](ProcessGroup group) {
        auto rank = static_cast<std::size_t>(group.rank());
        DistributedDataParallel<torch::nn::Sequential> model(nets[rank], group,
                                                             options(group.rank()));
      });
      CHECK(problems[0] == problems[1]);
      CHECK(problems[0] == problems[2]);
      return problems[0];
    };
    auto no_options = [](int) { return DataParallelOptions{}; };
    auto plain = [](int) { return torch::nn::Sequential(torch::nn::Linear(4, 3)); };
    const std::string tail = "; all ranks must build the same, in the same order";

    CHECK(sentence_of(plain, no_options) == "");
    CHECK(sentence_of(
              [](int rank) {
                return torch::nn::Sequential(torch::nn::Linear(4, 3),
                                             torch::nn::Linear(3, rank == 2 ? 5 : 6));
              },
              no_options) ==
          "the modules of the ranks differ: rank 2 has 'parameter 1.weight Float [5, 3]' where "
          "rank 0 has 'parameter 1.weight Float [6, 3]'" +
              tail);
    CHECK(sentence_of(
              [](int rank) {
                torch::nn::Sequential net(torch::nn::Linear(4, 3));
                if (rank > 0) net->to(torch::kDouble);
                return net;
              },
              no_options) ==
          "the modules of the ranks differ: rank 1 has 'parameter 0.weight Double [3, 4]' where "
          "rank 0 has 'parameter 0.weight Float [3, 4]'" +
              tail);
    CHECK(sentence_of(
              [](int rank) {
                return torch::nn::Sequential(
                    torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(rank != 0)));
              },
              no_options)
              .starts_with("the modules of the ranks differ: rank 1 has 'parameter 0.bias Float "
                           "[3]' where rank 0 has 'options "));
    CHECK(sentence_of(plain, [](int rank) {
            return DataParallelOptions{.find_unused_parameters = rank == 1};
          }).find("find_unused_parameters=1") != std::string::npos);
    CHECK(sentence_of(
              [](int) {
                torch::nn::Sequential net(torch::nn::Linear(4, 3));
                for (torch::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
                return net;
              },
              no_options) == "the module has no parameter that needs a gradient");
  }

  TEST_CASE("one rank may evaluate alone") {
    std::vector<Normalised> nets = make_nets<Normalised>(2);
    on_ranks(2, [&](ProcessGroup group) {
      DistributedDataParallel<Normalised> model(nets[static_cast<std::size_t>(group.rank())],
                                                group);
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        model(inputs(group.rank(), step, {kBatch, 1, 4, 4})).sum().backward();
        if (group.rank() == 0) {
          torch::NoGradGuard no_grad;
          model(inputs(0, step, {kBatch, 1, 4, 4}));
        }
      }
    });
  }

  TEST_CASE("zero_grad forgets gradients, or zeroes them where they lie") {
    for (bool views : {false, true}) {
      std::vector<Mixed> nets = make_nets<Mixed>(2);
      on_ranks(2, [&](ProcessGroup group) {
        Mixed& net = nets[static_cast<std::size_t>(group.rank())];
        DistributedDataParallel<Mixed> model(net, group, {.gradient_as_bucket_view = views});
        for (int step = 0; step < 3; ++step) {
          mixed_loss(model, group.rank(), step).backward();
          void* place = net->first->weight.grad().data_ptr();
          model.zero_grad(/*set_to_none=*/false);
          expect(net->first->weight.grad().data_ptr() == place, "the gradient stays where it was");
          expect(net->first->weight.grad().abs().sum().item<double>() == 0, "it is zero");
        }
        model.zero_grad();
        expect(!net->first->weight.grad().defined(), "the gradient is forgotten");
      });
    }
  }

  TEST_CASE("the bucket layout counts the parameters that were wrapped") {
    on_ranks(2, [](ProcessGroup group) {
      Tied net;
      DistributedDataParallel<Tied> model(net, group, {.bucket_cap_bytes = 16});
      model(inputs(group.rank(), 0, {kBatch, 6})).sum().backward();
      const BucketLayout layout = model.bucket_layout();
      expect(layout.size() == 2, "a bucket for each parameter");
      net->into->weight.requires_grad_(false);
      expect(model.bucket_layout() == layout, "one that is frozen now is still counted");
    });
  }

  TEST_CASE("tiny caps make many buckets, once the order of the gradients is known") {
    std::vector<Mixed> nets = make_nets<Mixed>(2);
    on_ranks(2, [&](ProcessGroup group) {
      DistributedDataParallel<Mixed> model(nets[static_cast<std::size_t>(group.rank())], group,
                                           {.bucket_cap_bytes = 64});
      std::size_t before = model.bucket_sizes().size();
      for (int step = 0; step < 2; ++step) mixed_loss(model, group.rank(), step).backward();
      expect(before == 2, "there is one bucket for each dtype at first");
      expect(model.bucket_sizes().size() >= 4, "there are many after the first step");
    });
  }

  TEST_CASE("two wrapped modules train side by side") {
    std::vector<Mixed> nets = make_nets<Mixed>(4);
    std::vector<Normalised> others = make_nets<Normalised>(2);
    on_ranks(2, [&](ProcessGroup group) {
      auto rank = static_cast<std::size_t>(group.rank());
      DistributedDataParallel<Normalised> other(others[rank], group);
      Mixed net = nets[2 * rank], reference = nets[2 * rank + 1];
      DistributedDataParallel<Mixed> model(net, group);
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        other.zero_grad();
        reference->zero_grad();
        torch::Tensor loss = mixed_loss(model, group.rank(), step);
        other(inputs(group.rank(), step, {kBatch, 1, 4, 4})).sum().backward();
        loss.backward();
        mixed_loss(reference, group.rank(), step).backward();
        average_gradients(group, *reference);
        expect_same_gradients(*net, *reference, "step " + std::to_string(step));
      }
    });
    CHECK(torch::equal(others[0]->conv->weight.grad(), others[1]->conv->weight.grad()));
  }
}
