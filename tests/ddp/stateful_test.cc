// SPDX-License-Identifier: BSD-3-Clause
//
// The states of hooks and of a program's own objects in checkpoints.
#include <torch/torch.h>

#include <filesystem>
#include <optional>

#include "tests/ddp/ranks.h"
#include "tests/support/temp_dir.h"
#include "worker/ddp/checkpointer.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/post_local_sgd.h"
#include "worker/ddp/power_sgd.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using ddprun::test::TempDir;

constexpr int kSteps = 9;
constexpr int kSavedAt = 5;
constexpr PowerSgdOptions kPowerSgd{.start_iteration = 3, .random_seed = 4};

// Layers that PowerSGD compresses, and biases that it does not.
torch::nn::Sequential layers() {
  return torch::nn::Sequential(torch::nn::Linear(24, 40), torch::nn::Tanh(),
                               torch::nn::Linear(40, 32));
}

// Made by the test's thread: those of the ranks share LibTorch's generator.
std::vector<torch::nn::Sequential> nets_of(int count) {
  std::vector<torch::nn::Sequential> nets;
  for (int i = 0; i < count; ++i) nets.push_back(layers());
  return nets;
}

torch::Tensor inputs(int rank, std::int64_t step) {
  return torch::sin(torch::arange(8 * 24).view({8, 24}) * 0.37 * static_cast<double>(step + 1) +
                    rank);
}

struct Run {
  std::string folder;
  PowerSgdOptions options = kPowerSgd;
  bool sharded = false;
  bool with_state = true;
  bool with_buckets = true;
};

// Trains to step `end` from where `run.folder` is, and saves there.
void train(const Run& run, ProcessGroup group, torch::nn::Sequential net, std::int64_t end) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  PowerSgdState power_sgd(run.options);
  Progress progress;
  BucketLayout buckets;
  TrainingState state{
      .model = *net, .optimizer = &optimizer, .progress = &progress, .random_numbers = false};
  if (run.with_state) state.stateful = {{"power_sgd", &power_sgd}};
  if (run.with_buckets) state.buckets = &buckets;
  Checkpointer checkpointer(group, {.directory = run.folder, .sharded = run.sharded});
  checkpointer.resume(state);
  DistributedDataParallel<torch::nn::Sequential> model(
      net, group,
      {.bucket_cap_bytes = 4000, .bucket_layout = buckets, .comm_hook = power_sgd.hook()});
  for (; progress.step < end; ++progress.step) {
    model.zero_grad();
    model.forward(inputs(group.rank(), progress.step)).square().mean().backward();
    optimizer.step();
  }
  expect(end < kSavedAt || model.bucket_layout().size() > 1, "there are several buckets");
  buckets = model.bucket_layout();
  checkpointer.save(state);
  checkpointer.wait();
}

// The parameters of rank 0 after all steps, of a run that stops and goes on at each of `stops`.
std::vector<torch::Tensor> trained(Run run, int world_size, std::vector<std::int64_t> stops) {
  const TempDir folder;
  run.folder = folder.path();
  stops.push_back(kSteps);
  std::vector<torch::nn::Sequential> nets;
  for (std::int64_t stop : stops) {
    torch::manual_seed(1);  // the values to begin with
    nets = nets_of(world_size);
    on_ranks(world_size, [&](ProcessGroup group) {
      train(run, group, nets[static_cast<std::size_t>(group.rank())], stop);
    });
  }
  return nets[0]->parameters();
}

bool are_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!torch::equal(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

// Has one number of its own on each rank, and one that all have.
struct Counters : Stateful {
  double own = 0;
  std::int64_t common = 0;
  std::string name = "own";
  StateDict state_dict() const override {
    return {.common = {{"common", torch::tensor(common)}}, .own = {{name, torch::tensor(own)}}};
  }
  void load_state_dict(const StateDict& state) override {
    common = state.common.at("common").item<std::int64_t>();
    own = state.own.at("own").item<double>();
  }
};

// Saves Counters of `world_size` ranks, with 10 + its rank on each.
void save_counters(const std::string& folder, int world_size, bool sharded) {
  on_ranks(world_size, [&](ProcessGroup group) {
    torch::nn::Linear net(1, 1);
    Counters counters;
    counters.own = 10 + group.rank();
    counters.common = 7;
    Checkpointer checkpointer(group, {.directory = folder, .sharded = sharded});
    checkpointer.save({.model = *net, .stateful = {{"mine", &counters}}});
    checkpointer.wait();
  });
}

}  // namespace

TEST_SUITE("ddp/stateful") {
  TEST_CASE("a run over PowerSGD that is stopped ends with the bits of one that is not") {
    for (int world_size : {2, 3}) {
      const std::vector<torch::Tensor> wanted = trained({}, world_size, {});
      CHECK(are_equal(trained({}, world_size, {kSavedAt}), wanted));
      CHECK(are_equal(trained({.sharded = true}, world_size, {kSavedAt, kSavedAt + 2}), wanted));
      // Before the compression begins, and at its first step.
      CHECK(are_equal(trained({}, world_size, {1, 3, 4}), wanted));
      // It does without the state neither: else the rest would show nothing.
      CHECK(!are_equal(trained({.with_state = false}, world_size, {kSavedAt}), wanted));
    }
  }

  TEST_CASE("so do those without a warm start, or without error feedback") {
    for (bool warm : {false, true}) {
      PowerSgdOptions options = kPowerSgd;
      options.warm_start = warm;
      options.use_error_feedback = !warm;
      options.batch_tensors_with_same_shape = warm;
      const std::vector<torch::Tensor> wanted = trained({.options = options}, 2, {});
      CHECK(are_equal(trained({.options = options}, 2, {kSavedAt}), wanted));
    }
  }

  TEST_CASE("a state of other buckets is refused") {
    const TempDir folder;
    std::vector<torch::nn::Sequential> nets = nets_of(2);
    on_ranks(2, [&](ProcessGroup group) {
      torch::nn::Sequential net = nets[static_cast<std::size_t>(group.rank())];
      train({.folder = folder.path()}, group, net, kSavedAt);
      const std::string problem = problem_of(
          [&] { train({.folder = folder.path(), .with_buckets = false}, group, net, kSteps); });
      expect(problem.starts_with("power_sgd_hook: bucket 0 has other gradients than in the step "
                                 "before or in the checkpoint: save bucket_layout()"),
             "it says what to do, not '" + problem + "'");
    });
  }

  TEST_CASE("what is no state of PowerSGD is refused") {
    PowerSgdState state(kPowerSgd);
    for (const StateDict& other :
         {StateDict{}, StateDict{.common = {{"iteration", torch::tensor(1)}}, .own = {}},
          StateDict{.common = {{"iteration", torch::tensor(1)}, {"seeds", torch::tensor(1)}},
          .own = {}}}) {
      CHECK(problem_of([&] { state.load_state_dict(other); }) ==
            "power_sgd_hook: what was saved is no state of it");
    }
    const StateDict saved = state.state_dict();
    CHECK(problem_of([&] { state.load_state_dict(saved); }) == "");
  }

  TEST_CASE("the counts of post-local SGD are saved and come back") {
    const TempDir folder;
    on_ranks(2, [&](ProcessGroup group) {
      torch::nn::Linear net(2, 1);
      {
        PostLocalSgdState hook({.start_iteration = 3, .post_local_gradient_allreduce = false});
        PeriodicModelAverager averager(group, 4, 2);
        DistributedDataParallel<torch::nn::Linear> model(net, group, {.comm_hook = hook.hook()});
        for (int step = 0; step < 5; ++step) {
          model(torch::ones({1, 2})).sum().backward();
          averager.average_parameters(net->parameters());
        }
        Checkpointer checkpointer(group, {.directory = folder.path()});
        checkpointer.save({.model = *net, .stateful = {{"averager", &averager}, {"hook", &hook}}});
        checkpointer.wait();
      }
      PostLocalSgdState hook({.start_iteration = 3, .post_local_gradient_allreduce = false});
      PeriodicModelAverager averager(group, 4, 2);
      Checkpointer checkpointer(group, {.directory = folder.path()});
      checkpointer.resume({.model = *net, .stateful = {{"averager", &averager}, {"hook", &hook}}});
      expect(averager.step() == 5, "five steps were counted");
      // After three steps each rank keeps its own gradients.
      net->zero_grad();
      DistributedDataParallel<torch::nn::Linear> model(net, group, {.comm_hook = hook.hook()});
      model(torch::full({1, 2}, group.rank() + 1.0)).sum().backward();
      expect(net->weight.grad()[0][0].item<double>() == group.rank() + 1, "it is not the mean");
    });
  }

  TEST_CASE("each rank has its own back, or the mean where the ranks are others") {
    for (bool sharded : {false, true}) {
      const TempDir folder;
      save_counters(folder.path(), 2, sharded);
      for (int world_size : {1, 2, 3}) {
        on_ranks(world_size, [&](ProcessGroup group) {
          torch::nn::Linear net(1, 1);
          Counters counters;
          Checkpointer checkpointer(group, {.directory = folder.path()});
          checkpointer.resume({.model = *net, .stateful = {{"mine", &counters}}});
          expect(counters.common == 7, "what is common is back");
          expect(counters.own == (world_size == 2 ? 10 + group.rank() : 10.5), "so is the own");
        });
      }
    }
  }

  TEST_CASE("states that do not fit are refused on every rank") {
    const TempDir folder;
    save_counters(folder.path(), 2, false);
    auto said = [&](const std::function<void(Checkpointer&, torch::nn::Module&, int)>& action) {
      return run_ranks(2, [&](ProcessGroup group) {
        torch::nn::Linear net(1, 1);
        Checkpointer checkpointer(group, {.directory = folder.path()});
        action(checkpointer, *net, group.rank());
      });
    };
    std::vector<std::string> problems =
        said([](Checkpointer& checkpointer, torch::nn::Module& net, int) {
          Counters counters;
          checkpointer.resume({.model = net, .stateful = {{"other", &counters}}});
        });
    CHECK(problems[0].ends_with("it has no state of 'other' (TrainingState::stateful)"));
    CHECK(problems[1] == problems[0]);

    problems = said([](Checkpointer& checkpointer, torch::nn::Module& net, int rank) {
      Counters counters;
      if (rank == 1) counters.name = "else";
      checkpointer.save({.model = net, .stateful = {{"mine", &counters}}});
    });
    CHECK(problems[0] ==
          "save a checkpoint: the states in TrainingState::stateful are others on rank 1 than on "
          "rank 0");
    CHECK(problems[1] == problems[0]);

    problems = said([](Checkpointer& checkpointer, torch::nn::Module& net, int) {
      Counters counters;
      checkpointer.save({.model = net, .stateful = {{"a.b", &counters}}});
    });
    CHECK(problems[0] ==
          "save a checkpoint: TrainingState::stateful: 'a.b' is no name, or has no object");
    CHECK(problems[1] == problems[0]);

    // A checkpoint without any leaves the objects as they are.
    const TempDir older;
    on_ranks(2, [&](ProcessGroup group) {
      torch::nn::Linear net(1, 1);
      Counters counters;
      counters.own = 3;
      Checkpointer checkpointer(group, {.directory = older.path()});
      checkpointer.save({.model = *net});
      checkpointer.resume({.model = *net, .stateful = {{"mine", &counters}}});
      expect(counters.own == 3, "nothing was loaded");
    });
  }
}
