// SPDX-License-Identifier: BSD-3-Clause
//
// Uneven inputs, accumulation and clipping, against one process or plain arithmetic.  That join()
// is Python's, python_parity_test.py shows.
#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "worker/ddp/data_parallel.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;

constexpr std::int64_t kBatch = 4;

template <class Net>
std::vector<Net> make_nets(int count) {
  std::vector<Net> nets;
  for (int i = 0; i < count; ++i) {
    torch::manual_seed(7);
    nets.emplace_back();
  }
  return nets;
}

torch::nn::Sequential small_net() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(6, 20), torch::nn::Tanh(),
                               torch::nn::Linear(20, 3));
}

// What `world_size` ranks with steps_of(rank) steps each would do, in one process: in each step the
// gradients of those that have inputs are added up and divided.
void train_alone(torch::nn::Sequential net, int world_size,
                 const std::function<int(int rank)>& steps_of, bool divide_by_initial) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0;; ++step) {
    int active = 0;
    net->zero_grad();
    for (int rank = 0; rank < world_size; ++rank) {
      if (step >= steps_of(rank)) continue;
      ++active;
      net->forward(inputs(rank, step, {kBatch, 6})).square().mean().backward();
    }
    if (active == 0) return;
    for (torch::Tensor& parameter : net->parameters()) {
      parameter.mutable_grad().div_(divide_by_initial ? world_size : active);
    }
    optimizer.step();
  }
}

std::vector<torch::nn::Sequential> small_nets(int count) {
  std::vector<torch::nn::Sequential> nets;
  for (int i = 0; i < count; ++i) nets.push_back(small_net());
  return nets;
}

}  // namespace

TEST_SUITE("ddp/join") {
  TEST_CASE("ranks with fewer inputs contribute nothing, and end with the same parameters") {
    const std::function<int(int)> kSteps[] = {
        [](int rank) { return 2 + 2 * rank; }, [](int rank) { return 5 - rank; },
        [](int rank) { return rank == 0 ? 0 : 3; }, [](int) { return 3; }, [](int) { return 0; }};
    const DataParallelOptions kOptions[] = {{},
                                            {.bucket_cap_bytes = 64},
                                            {.gradient_as_bucket_view = true},
                                            {.find_unused_parameters = true}};
    std::size_t round = 0;
    for (int world_size = 1; world_size <= 4; ++world_size) {
      for (const auto& steps_of : kSteps) {
        for (bool divide_by_initial : {true, false}) {
          const DataParallelOptions& options = kOptions[round++ % std::size(kOptions)];
          std::vector<torch::nn::Sequential> nets = small_nets(world_size + 1);
          on_ranks(world_size, [&](ProcessGroup group) {
            torch::nn::Sequential net = nets[static_cast<std::size_t>(group.rank())];
            DistributedDataParallel<torch::nn::Sequential> model(net, group, options);
            torch::optim::SGD optimizer(net->parameters(), 0.1);
            model.join(
                [&] {
                  for (int step = 0; step < steps_of(group.rank()); ++step) {
                    model.zero_grad();
                    model(inputs(group.rank(), step, {kBatch, 6})).square().mean().backward();
                    optimizer.step();
                  }
                },
                {.divide_by_initial_world_size = divide_by_initial});
          });
          train_alone(nets.back(), world_size, steps_of, divide_by_initial);
          for (int rank = 0; rank < world_size; ++rank) {
            for (std::size_t i = 0; i < nets.back()->parameters().size(); ++i) {
              CHECK(torch::allclose(nets[static_cast<std::size_t>(rank)]->parameters()[i],
                                    nets.back()->parameters()[i], 1e-5, 1e-6));
            }
          }
        }
      }
    }
  }

  TEST_CASE("after a join all ranks train on together, and may join again") {
    std::vector<Normalised> nets = make_nets<Normalised>(3);
    on_ranks(3, [&](ProcessGroup group) {
      Normalised net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel<Normalised> model(net, group);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      auto train = [&](int steps) {
        for (int step = 0; step < steps; ++step) {
          model.zero_grad();
          model(inputs(group.rank(), step, {kBatch, 1, 4, 4})).square().mean().backward();
          optimizer.step();
        }
      };
      model.join([&] { train(1 + group.rank()); });
      train(2);
      model.join([&] { train(4 - group.rank()); });
    });
    for (const Normalised& net : {nets[1], nets[2]}) {
      for (const auto& item : nets[0]->named_parameters()) {
        CHECK(torch::equal(item.value(), net->named_parameters()[item.key()]));
      }
      for (const auto& item : nets[0]->named_buffers()) {
        CHECK(torch::equal(item.value(), net->named_buffers()[item.key()]));
      }
    }
  }

  TEST_CASE("steps without synchronisation are shadowed as well") {
    std::vector<torch::nn::Sequential> nets = small_nets(2);
    on_ranks(2, [&](ProcessGroup group) {
      torch::nn::Sequential net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel<torch::nn::Sequential> model(net, group);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      model.join([&] {
        for (int step = 0; step < 2 + 2 * group.rank(); ++step) {
          model.zero_grad();
          model.accumulate(3, [&](int pass) {
            return model(inputs(group.rank(), 3 * step + pass, {kBatch, 6})).square().mean();
          });
          optimizer.step();
        }
      });
    });
    CHECK(torch::equal(nets[0]->parameters()[0], nets[1]->parameters()[0]));
  }

  TEST_CASE("what the ranks that go on do not use keeps no gradient") {
    std::vector<Branching> nets = make_nets<Branching>(2);
    on_ranks(2, [&](ProcessGroup group) {
      Branching net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel<Branching> model(net, group, {.find_unused_parameters = true});
      model.join([&] {
        for (int step = 0; step < 4 - 2 * group.rank(); ++step) {
          model.zero_grad();
          bool go_left = step >= 2 || group.rank() == 0;
          model(inputs(group.rank(), step, {kBatch, 6}), go_left)["main"].sum().backward();
          expect(net->left->weight.grad().defined(), "rank 0 takes this branch");
          expect(net->right->weight.grad().defined() == (step < 2), "rank 1 alone took this one");
        }
      });
    });
  }

  TEST_CASE("an early end can be made an error, the same on all ranks") {
    std::vector<torch::nn::Sequential> nets = small_nets(3);
    std::vector<std::string> problems = run_ranks(3, [&](ProcessGroup group) {
      DistributedDataParallel<torch::nn::Sequential> model(
          nets[static_cast<std::size_t>(group.rank())], group);
      model.join(
          [&] {
            for (int step = 0; step < (group.rank() == 1 ? 2 : 5); ++step) {
              model(inputs(group.rank(), step, {kBatch, 6})).sum().backward();
            }
          },
          {.throw_on_early_end = true});
    });
    for (const std::string& problem : problems) {
      CHECK(problem == "rank 1 of 3 ran out of inputs before ranks 0 and 2");
    }
  }

  TEST_CASE("a static graph is joined once every rank has taken its first step") {
    std::vector<torch::nn::Sequential> nets = small_nets(3);
    auto train = [&](ProcessGroup group, std::vector<int> steps_of_joins) {
      torch::nn::Sequential net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel<torch::nn::Sequential> model(net, group, {.static_graph = true});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int steps : steps_of_joins) {
        model.join([&] {
          for (int step = 0; step < steps; ++step) {
            model.zero_grad();
            model(inputs(group.rank(), step, {kBatch, 6})).square().mean().backward();
            optimizer.step();
          }
        });
      }
    };
    const std::vector<std::vector<int>> kSteps = {{1, 4}, {4, 0}, {2, 3}};
    on_ranks(3, [&](ProcessGroup group) {
      train(group, kSteps[static_cast<std::size_t>(group.rank())]);
    });
    for (std::size_t i = 0; i < nets[0]->parameters().size(); ++i) {
      CHECK(torch::equal(nets[0]->parameters()[i], nets[1]->parameters()[i]));
      CHECK(torch::equal(nets[0]->parameters()[i], nets[2]->parameters()[i]));
    }
    for (const std::string& problem :
         run_ranks(2, [&](ProcessGroup group) { train(group, {2 * group.rank()}); })) {
      CHECK(problem ==
            "the first step of a static graph, which every rank learns, needs inputs on all: "
            "rank 0 of 2 had none in this join()");
    }
  }

  TEST_CASE("what cannot be joined is refused") {
    auto problem = [](const DataParallelOptions& options, const JoinOptions& join_options) {
      std::vector<torch::nn::Sequential> nets = small_nets(1);
      return run_ranks(1, [&](ProcessGroup group) {
        DistributedDataParallel<torch::nn::Sequential> model(nets[0], group, options);
        model.join([] {}, join_options);
      })[0];
    };
    CHECK(problem({.lazy_bucket_allocation = true}, {}) ==
          "join() and lazy_bucket_allocation exclude each other");
    CHECK(problem({.compression = Compression::Float16}, {.divide_by_initial_world_size = false})
              .starts_with("join() without divide_by_initial_world_size excludes comm_hook"));
    CHECK(problem({.compression = Compression::Float16}, {}) == "");
  }

  TEST_CASE("accumulated passes are one step with the mean of the losses") {
    for (bool views : {false, true}) {
      std::vector<torch::nn::Sequential> nets = small_nets(3);
      std::vector<double> losses(2);
      on_ranks(2, [&](ProcessGroup group) {
        auto rank = static_cast<std::size_t>(group.rank());
        DistributedDataParallel<torch::nn::Sequential> model(nets[rank], group,
                                                             {.gradient_as_bucket_view = views});
        for (int step = 0; step < 2; ++step) {
          model.zero_grad();
          losses[rank] =
              model
                  .accumulate(
                      3,
                      [&](int pass) {
                        return model(inputs(group.rank(), pass, {kBatch, 6})).square().mean();
                      })
                  .item<double>();
        }
      });
      torch::Tensor sum = torch::zeros({1});
      for (int rank = 0; rank < 2; ++rank) {
        for (int pass = 0; pass < 3; ++pass) {
          sum = sum + nets[2]->forward(inputs(rank, pass, {kBatch, 6})).square().mean();
        }
      }
      (sum / 6).backward();
      CHECK((losses[0] + losses[1]) / 2 == doctest::Approx(sum.item<double>() / 6));
      for (std::size_t i = 0; i < nets[2]->parameters().size(); ++i) {
        CHECK(torch::allclose(nets[0]->parameters()[i].grad(), nets[2]->parameters()[i].grad(),
                              1e-5, 1e-7));
      }
    }
  }

  TEST_CASE("clipping scales all gradients by one factor, as torch's own does") {
    std::vector<Mixed> nets = make_nets<Mixed>(2);
    on_ranks(2, [&](ProcessGroup group) {
      Mixed net = nets[static_cast<std::size_t>(group.rank())];
      DistributedDataParallel<Mixed> model(net, group, {.gradient_as_bucket_view = true});
      for (double norm_type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
        for (double max_norm : {0.01, 1e6}) {
          model.zero_grad();
          model(inputs(group.rank(), 0, {kBatch, 6})).square().mean().backward();
          std::vector<torch::Tensor> before;
          torch::Tensor all = torch::zeros({0}, torch::kDouble);
          for (const torch::Tensor& parameter : net->parameters()) {
            if (!parameter.grad().defined()) continue;
            before.push_back(parameter.grad().clone());
            all = torch::cat({all, before.back().flatten().to(torch::kDouble)});
          }
          double wanted = torch::norm(all, norm_type).item<double>();
          double norm = model.clip_grad_norm(max_norm, norm_type);
          expect(std::abs(norm - wanted) < 1e-5 * wanted, "the norm before is returned");
          double scale = std::min(1.0, max_norm / (wanted + 1e-6));
          std::size_t i = 0;
          for (const torch::Tensor& parameter : net->parameters()) {
            if (!parameter.grad().defined()) continue;
            expect(torch::allclose(parameter.grad(), before[i++] * scale, 1e-4, 1e-9), "scaled");
          }
        }
      }
      auto problem_of = [](const std::function<void()>& action) -> std::string {
        try {
          action();
        } catch (const DdpError& error) {
          return error.what();
        }
        return "";
      };
      expect(problem_of([&] { model.clip_grad_norm(0); }).starts_with("clip_grad_norm: max_norm 0"),
             "a maximum of 0 is refused");
      expect(problem_of([&] {
               auto guard = model.no_sync();
               model.clip_grad_norm(1);
             }).starts_with("clip_grad_norm inside no_sync"),
             "local gradients are not clipped");
    });
  }
}
