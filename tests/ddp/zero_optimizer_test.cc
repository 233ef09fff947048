// SPDX-License-Identifier: BSD-3-Clause
//
// The sharded optimizer beside the plain one: equal parameters, a part of the state on each rank,
// and the same checkpoint.  That its parts are Python's, python_parity_test.py shows.
#include "worker/ddp/zero_optimizer.h"

#include <filesystem>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "tests/support/temp_dir.h"
#include "worker/ddp/checkpointer.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/tensor_file.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using torch::optim::AdamOptions;
using torch::optim::OptimizerParamGroup;

using ZeroAdam = ZeroRedundancyOptimizer<torch::optim::Adam>;

// Equal ones, made beforehand: LibTorch's generator is shared by the threads that play the ranks.
std::vector<Mixed> mixed_nets(int count) {
  std::vector<Mixed> nets;
  for (int i = 0; i < count; ++i) {
    torch::manual_seed(7);
    nets.emplace_back();
  }
  return nets;
}

// Steps `first` to `last` of one rank, by either optimizer.
void train(ProcessGroup group, Mixed net, torch::optim::Optimizer& optimizer, int first, int last) {
  DistributedDataParallel<Mixed> model(net, group);
  for (int step = first; step < last; ++step) {
    model.zero_grad();
    model(inputs(0, step, {4, 6})).square().mean().backward();
    optimizer.step();
  }
}

bool are_equal(const torch::nn::Module& one, const torch::nn::Module& other) {
  for (std::size_t i = 0; i < one.parameters().size(); ++i) {
    if (!torch::equal(one.parameters()[i], other.parameters()[i])) return false;
  }
  return true;
}

}  // namespace

TEST_SUITE("ddp/zero_optimizer") {
  TEST_CASE("each parameter goes to the rank with the fewest elements, the largest first") {
    on_ranks(3, [](ProcessGroup group) {
      std::vector<at::Tensor> parameters;
      for (std::int64_t size : {5, 9, 1, 9, 3}) {
        parameters.push_back(torch::zeros({size}, torch::requires_grad()));
      }
      ZeroAdam optimizer(parameters, group, AdamOptions(0.1));
      const std::vector<std::vector<std::size_t>> wanted{{1}, {3}, {0, 4, 2}};
      for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
        const std::vector<at::Tensor>& part = optimizer.parameters_by_rank()[rank];
        expect(part.size() == wanted[rank].size(), "a rank has as many as wanted");
        for (std::size_t i = 0; i < part.size(); ++i) {
          expect(part[i].is_same(parameters[wanted[rank][i]]), "a rank has those wanted");
        }
      }
    });
  }

  TEST_CASE("it steps as the plain optimizer does, with a part of its state") {
    Mixed alone = mixed_nets(1)[0];
    torch::optim::Adam plain(alone->parameters(), AdamOptions(0.05).weight_decay(0.1));
    on_ranks(1, [&](ProcessGroup group) { train(group, alone, plain, 0, 5); });
    for (int world_size : {1, 2, 4}) {
      std::vector<Mixed> nets = mixed_nets(world_size);
      std::vector<std::size_t> states(static_cast<std::size_t>(world_size));
      on_ranks(world_size, [&](ProcessGroup group) {
        const auto rank = static_cast<std::size_t>(group.rank());
        ZeroAdam optimizer(nets[rank]->parameters(), group, AdamOptions(0.05).weight_decay(0.1));
        train(group, nets[rank], optimizer, 0, 5);
        states[rank] = optimizer.local().state().size();
        optimizer.consolidate_state(world_size - 1);
        expect(
            optimizer.state().size() == (group.rank() == world_size - 1 ? plain.state().size() : 0),
            "one rank has all of it");
      });
      std::size_t sum = 0;
      for (std::size_t count : states) sum += count;
      CHECK(sum == plain.state().size());
      CHECK(states[0] < (world_size == 1 ? sum + 1 : sum));
      for (const Mixed& net : nets) CHECK(are_equal(*net, *alone));
    }
  }

  TEST_CASE("groups keep their settings, and a schedule reaches the local optimizers") {
    auto groups_of = [](const Mixed& net) {
      std::vector<OptimizerParamGroup> groups;
      groups.emplace_back(net->first->parameters(), std::make_unique<AdamOptions>(0.2));
      groups.emplace_back(net->wide->parameters());
      return groups;
    };
    auto go = [&](ProcessGroup group, Mixed net, auto& optimizer) {
      optimizer.add_param_group(OptimizerParamGroup(net->last->parameters()));
      torch::optim::StepLR schedule(optimizer, /*step_size=*/2, /*gamma=*/0.5);
      for (int i = 0; i < 2; ++i) {
        train(group, net, optimizer, 2 * i, 2 * i + 2);
        schedule.step();
        schedule.step();
      }
    };
    Mixed alone = mixed_nets(1)[0];
    on_ranks(1, [&](ProcessGroup group) {
      torch::optim::Adam plain(groups_of(alone), AdamOptions(0.05));
      go(group, alone, plain);
    });
    std::vector<Mixed> nets = mixed_nets(2);
    on_ranks(2, [&](ProcessGroup group) {
      Mixed net = nets[static_cast<std::size_t>(group.rank())];
      ZeroAdam optimizer(groups_of(net), group, AdamOptions(0.05));
      go(group, net, optimizer);
    });
    for (const Mixed& net : nets) CHECK(are_equal(*net, *alone));
  }

  TEST_CASE("its checkpoint is that of the plain optimizer, at any number of ranks") {
    ddprun::test::TempDir folder;
    auto save = [&](ProcessGroup group, Mixed net, torch::optim::Optimizer& optimizer,
                    const char* name) {
      train(group, net, optimizer, 0, 3);
      Progress progress{.step = 3};
      Checkpointer checkpointer(group, {.directory = std::filesystem::path(folder.path()) / name});
      checkpointer.save({.model = *net, .optimizer = &optimizer, .progress = &progress});
      checkpointer.wait();
    };
    auto resume = [&](ProcessGroup group, Mixed net, torch::optim::Optimizer& optimizer,
                      const char* name) {
      Checkpointer checkpointer(group, {.directory = std::filesystem::path(folder.path()) / name});
      expect(checkpointer.resume({.model = *net, .optimizer = &optimizer}).has_value(), "resumed");
      train(group, net, optimizer, 3, 6);
    };
    Mixed alone = mixed_nets(1)[0];
    on_ranks(1, [&](ProcessGroup group) {
      torch::optim::Adam plain(alone->parameters(), AdamOptions(0.05));
      save(group, alone, plain, "plain");
      train(group, alone, plain, 3, 6);
    });
    std::vector<Mixed> saved = mixed_nets(4);
    on_ranks(4, [&](ProcessGroup group) {
      Mixed net = saved[static_cast<std::size_t>(group.rank())];
      ZeroAdam optimizer(net->parameters(), group, AdamOptions(0.05));
      save(group, net, optimizer, "sharded");
    });
    const std::filesystem::path file = "step-000000000003/optimizer.safetensors";
    const TensorMap plain_state =
        load_tensors(std::filesystem::path(folder.path()) / "plain" / file);
    const TensorMap sharded_state =
        load_tensors(std::filesystem::path(folder.path()) / "sharded" / file);
    CHECK(plain_state.size() == sharded_state.size());
    for (const auto& [name, tensor] : plain_state) {
      CAPTURE(name);
      REQUIRE(sharded_state.contains(name));
      CHECK(torch::equal(tensor, sharded_state.at(name)));
    }
    for (const char* name : {"plain", "sharded"}) {
      std::vector<Mixed> nets = mixed_nets(2);
      on_ranks(2, [&](ProcessGroup group) {
        Mixed net = nets[static_cast<std::size_t>(group.rank())];
        ZeroAdam optimizer(net->parameters(), group, AdamOptions(0.05));
        resume(group, net, optimizer, name);
      });
      for (const Mixed& net : nets) CHECK(are_equal(*net, *alone));
    }
  }

  TEST_CASE("what cannot be sharded, or is not there, is said") {
    for (const std::string& problem : run_ranks(2, [](ProcessGroup group) {
           at::Tensor parameter = torch::zeros({2 + group.rank()}, torch::requires_grad());
           ZeroAdam optimizer({parameter}, group, AdamOptions(0.1));
         })) {
      CHECK(problem.find("parameter Float [3] of group 0") != std::string::npos);
    }
    on_ranks(1, [](ProcessGroup group) {
      Mixed net;
      using ZeroLbfgs = ZeroRedundancyOptimizer<torch::optim::LBFGS>;
      expect(problem_of([&] {
               ZeroLbfgs optimizer(net->parameters(), group, torch::optim::LBFGSOptions(1));
             }).starts_with("ZeroRedundancyOptimizer: LBFGS steps all parameters as one"),
             "LBFGS is refused");
      ZeroAdam optimizer(net->parameters(), group, AdamOptions(0.1));
      expect(problem_of([&] {
               std::ostringstream archive;
               torch::save(optimizer, archive);
             }).starts_with("a ZeroRedundancyOptimizer is saved by the Checkpointer"),
             "torch::save is refused");
    });
  }
}
