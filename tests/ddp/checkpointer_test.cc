// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpointer.h"

#include <sys/stat.h>
#include <torch/optim/schedulers/step_lr.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "tests/support/temp_dir.h"
#include "worker/checkpoint/directory.h"
#include "worker/ddp/data_parallel.h"
#include "worker/timeline_slice.h"

namespace {

namespace fs = std::filesystem;
using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using ddprun::test::TempDir;

enum class Kind : std::uint8_t { Sgd, Adam, AdamW, RmsProp, Adagrad };

// A training program in small: everything that a checkpoint keeps.
struct Program {
  ProcessGroup group;
  Normalised net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  ElasticSampler sampler;
  Progress progress;

  Program(ProcessGroup joined, Normalised module, Kind kind = Kind::Sgd)
      : group(std::move(joined)),
        net(std::move(module)),
        optimizer(make_optimizer(kind)),
        sampler(ElasticSampler::make({.sample_count = 40, .step_size = 6, .seed = 5}).value()) {}

  TrainingState state() {
    return {
        .model = *net, .optimizer = optimizer.get(), .sampler = &sampler, .progress = &progress};
  }

  void train(int steps) {
    DistributedDataParallel<Normalised> model(net, group);
    for (int i = 0; i < steps; ++i) {
      if (sampler.is_epoch_done()) sampler.next_epoch();
      Share share = sampler.next(group.rank(), group.world_size());
      torch::Tensor batch = torch::stack(rows(share.indices));
      model.zero_grad();
      (share.weight * model(batch).square().mean()).backward();
      optimizer->step();
      sampler.commit();
      ++progress.step;
      progress.values["last rank count"] = group.world_size();
    }
  }

 private:
  std::unique_ptr<torch::optim::Optimizer> make_optimizer(Kind kind) {
    auto parameters = net->parameters();
    switch (kind) {
      case Kind::Sgd:
        return std::make_unique<torch::optim::SGD>(parameters,
                                                   torch::optim::SGDOptions(0.1).momentum(0.9));
      case Kind::Adam:
        return std::make_unique<torch::optim::Adam>(parameters,
                                                    torch::optim::AdamOptions(0.01).amsgrad(true));
      case Kind::AdamW:
        return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01));
      case Kind::RmsProp:
        return std::make_unique<torch::optim::RMSprop>(
            parameters, torch::optim::RMSpropOptions(0.01).momentum(0.9).centered(true));
      case Kind::Adagrad:
        return std::make_unique<torch::optim::Adagrad>(
            parameters, torch::optim::AdagradOptions(0.01).lr_decay(0.1));
    }
    return nullptr;
  }

  static std::vector<torch::Tensor> rows(const std::vector<std::int64_t>& indices) {
    std::vector<torch::Tensor> found;
    for (std::int64_t index : indices)
      found.push_back(inputs(0, static_cast<int>(index), {1, 4, 4}));
    return found;
  }
};

// Modules made beforehand: LibTorch's generator is shared by the threads that play the ranks.
std::vector<Normalised> make_nets(int count) {
  std::vector<Normalised> nets;
  for (int i = 0; i < count; ++i) {
    torch::manual_seed(static_cast<std::uint64_t>(i));
    nets.emplace_back();
  }
  return nets;
}

std::vector<torch::Tensor> values_of(const Normalised& net) {
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& tensor : net->parameters()) values.push_back(tensor.detach().clone());
  for (const torch::Tensor& tensor : net->buffers()) values.push_back(tensor.clone());
  return values;
}

bool are_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const torch::Tensor& x, const torch::Tensor& y) { return torch::equal(x, y); });
}

Normalised& net_of(std::vector<Normalised>& nets, const ProcessGroup& group) {
  return nets[static_cast<std::size_t>(group.rank())];
}

// An optimizer that LibTorch does not know.
struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(std::vector<torch::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  torch::Tensor step(LossClosure) override { return {}; }
};

// Steps of LBFGS on a small problem; returns what the parameters are then.
std::vector<torch::Tensor> minimise(torch::nn::Linear& net, torch::optim::LBFGS& optimizer,
                                    int steps) {
  const torch::Tensor input = torch::linspace(-1, 1, 24).reshape({8, 3});
  for (int i = 0; i < steps; ++i) {
    optimizer.step([&] {
      optimizer.zero_grad();
      torch::Tensor loss = (net(input).square().square().mean() - 1).square().mean();
      loss.backward();
      return loss;
    });
  }
  return {net->weight.detach().clone(), net->bias.detach().clone()};
}

// Publishes a checkpoint of steps 3 and 6, made by one rank.
void save_two(const std::string& directory) {
  std::vector<Normalised> nets = make_nets(1);
  on_ranks(1, [&](ProcessGroup group) {
    Program program(group, nets[0]);
    Checkpointer checkpointer(group, {.directory = directory});
    for (int i = 0; i < 2; ++i) {
      program.train(3);
      checkpointer.save(program.state());
    }
  });
}

// What resuming from `directory` into `program` says on both of two ranks.
std::string refusal(
    const std::string& directory,
    const std::function<std::optional<Resumed>(Checkpointer&, ProcessGroup)>& resume) {
  std::vector<std::string> problems = run_ranks(2, [&](ProcessGroup group) {
    Checkpointer checkpointer(group, {.directory = directory});
    resume(checkpointer, group);
  });
  CHECK(problems[0] == problems[1]);
  return problems[0];
}

// The one rank of a run, as its agent starts it.
ProcessGroup lone_rank(const StoreHost& host, const std::string& run_uuid, int round = 0) {
  ddprun::worker::WorkerEnv env = env_of(0, 1, host.port());
  env.run_uuid = run_uuid;
  env.round = round;
  return init_process_group({}, env);
}

// What is in a directory, "6 5 4 ".
std::string steps_in(const fs::path& directory) {
  std::string steps;
  for (const FoundCheckpoint& found : list_checkpoints(directory)) {
    steps += std::to_string(found.step) + " ";
  }
  return steps;
}

// A small training of one rank, or without a group.
struct Small {
  torch::nn::Linear net{2, 1};
  Progress progress;
  std::vector<std::string> notices;
  Checkpointer checkpointer;

  Small(const ProcessGroup& group, const std::string& directory, int keep_last)
      : checkpointer(group, options(directory, keep_last)) {}
  Small(const std::string& directory, int keep_last)
      : checkpointer(options(directory, keep_last)) {}

  TrainingState state() { return {.model = *net, .progress = &progress}; }
  void save(std::int64_t step) {
    progress.step = step;
    checkpointer.save(state());
    checkpointer.wait();
  }
  std::int64_t resume(std::optional<std::int64_t> step = std::nullopt) {
    return checkpointer.resume(state(), {.step = step}).value().progress.step;
  }

 private:
  CheckpointerOptions options(const std::string& directory, int keep_last) {
    return {.directory = directory,
            .keep_last = keep_last,
            .notify = [this](const std::string& sentence) { notices.push_back(sentence); }};
  }
};

// A layer that the ranks share, and a parameter and a buffer that each has of its own.
struct PartlyOwnImpl : torch::nn::Module {
  explicit PartlyOwnImpl(int rows) {
    register_module("shared", shared);
    own = register_parameter("own", torch::randn({rows, 3}));
    seen = register_buffer("seen", torch::zeros({rows}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    seen += 1;
    return torch::tanh(shared(x)).matmul(own.t());
  }
  torch::nn::Linear shared{4, 3};
  torch::Tensor own;
  torch::Tensor seen;
};
TORCH_MODULE(PartlyOwn);

std::vector<PartlyOwn> partly_own(const std::vector<int>& rows) {
  std::vector<PartlyOwn> nets;
  for (int count : rows) nets.emplace_back(count);
  return nets;
}

void train(PartlyOwn& net, ProcessGroup group, torch::optim::Optimizer& optimizer, int step) {
  DistributedDataParallel<PartlyOwn> model(net, group, {.ignored = {"own", "seen"}});
  for (int i = 0; i < 2; ++i) {
    model.zero_grad();
    model(inputs(group.rank(), step + i, {5, 4})).square().mean().backward();
    optimizer.step();
  }
}

bool are_same(const PartlyOwn& a, const PartlyOwn& b) {
  return are_equal(a->parameters(), b->parameters()) && are_equal(a->buffers(), b->buffers());
}

}  // namespace

TEST_SUITE("ddp/checkpoint/checkpointer") {
  TEST_CASE("a program that was stopped ends bit for bit as one that was not") {
    for (Kind kind : {Kind::Sgd, Kind::Adam, Kind::AdamW, Kind::RmsProp, Kind::Adagrad}) {
      CAPTURE(static_cast<int>(kind));
      TempDir directory;
      std::vector<Normalised> undisturbed = make_nets(2), first = make_nets(2);
      std::vector<Normalised> second = make_nets(4);  // starts from other parameters
      second.erase(second.begin(), second.begin() + 2);
      on_ranks(2, [&](ProcessGroup group) {
        Program program(group, net_of(undisturbed, group), kind);
        program.train(5);
        program.train(6);
      });
      on_ranks(2, [&](ProcessGroup group) {
        Program program(group, net_of(first, group), kind);
        Checkpointer checkpointer(group, {.directory = directory.path()});
        expect(!checkpointer.resume(program.state()), "there is nothing to resume from yet");
        program.train(5);
        checkpointer.save(program.state());
        program.train(1);  // lost
      });
      on_ranks(2, [&](ProcessGroup group) {
        Program program(group, net_of(second, group), kind);
        Checkpointer checkpointer(group, {.directory = directory.path()});
        std::optional<Resumed> resumed = checkpointer.resume(program.state());
        expect(resumed && resumed->progress.step == 5, "it resumes from step 5");
        expect(program.progress.values["last rank count"] == 2, "values come back");
        program.train(6);
      });
      CHECK(are_equal(values_of(second[0]), values_of(undisturbed[0])));
      CHECK(are_equal(second[0]->parameters(), second[1]->parameters()));
      CHECK(!are_equal(values_of(second[0]), values_of(first[0])));
    }
  }

  TEST_CASE("a run goes on with another number of ranks, at the same sample") {
    TempDir directory;
    save_two(directory.path());
    for (int world_size : {1, 3}) {
      std::vector<Normalised> nets = make_nets(world_size);
      on_ranks(world_size, [&](ProcessGroup group) {
        Program program(group, net_of(nets, group));
        Checkpointer checkpointer(group, {.directory = directory.path()});
        expect(checkpointer.resume(program.state()).has_value(), "it resumes");
        expect(program.sampler.state() ==
                   SamplerState{.sample_count = 40, .seed = 5, .epoch = 0, .consumed = 36},
               "the data position is where it was");
      });
    }
  }

  TEST_CASE("a damaged checkpoint is passed over, and said to be") {
    TempDir directory;
    save_two(directory.path());
    fs::path newest = fs::path(directory.path()) / "step-000000000006";
    fs::resize_file(newest / "model.safetensors", 100);
    std::vector<Normalised> nets = make_nets(2);
    std::vector<std::string> notices;  // of rank 0 alone
    on_ranks(2, [&](ProcessGroup group) {
      Program program(group, net_of(nets, group));
      Checkpointer checkpointer(
          group, {.directory = directory.path(),
                  .notify = [&](const std::string& sentence) { notices.push_back(sentence); }});
      std::optional<Resumed> resumed = checkpointer.resume(program.state());
      expect(resumed && resumed->progress.step == 3, "it resumes from the one before");
    });
    REQUIRE(notices.size() == 2);
    CHECK(notices[0].starts_with("passing over a damaged checkpoint: " + newest.string() +
                                 ": model.safetensors has 100 bytes instead of "));
    CHECK(notices[1] == "moved " + newest.string() + " to .damaged-step-000000000006");
    CHECK(!fs::exists(newest));
    CHECK(fs::exists(fs::path(directory.path()) / ".damaged-step-000000000006"));
  }

  TEST_CASE("with keep_last = 1 the good checkpoint stays after a damaged one") {
    TempDir directory;
    save_two(directory.path());
    const fs::path newest = fs::path(directory.path()) / "step-000000000006";
    {  // of the right length, so that only its sum tells
      std::fstream file(newest / "model.safetensors", std::ios::in | std::ios::out);
      file.seekp(-1, std::ios::end) << 'x';
    }
    std::vector<Normalised> nets = make_nets(1);
    on_ranks(1, [&](ProcessGroup group) {
      Program program(group, nets[0]);
      Checkpointer checkpointer(
          group,
          {.directory = directory.path(), .keep_last = 1, .notify = [](const std::string&) {}});
      expect(checkpointer.resume(program.state())->progress.step == 3, "it resumes from step 3");
      for (int i = 0; i < 2; ++i) {  // the first removes nothing of another run
        program.train(1);
        checkpointer.save(program.state());
      }
    });
    std::vector<FoundCheckpoint> found = list_checkpoints(directory.path());
    REQUIRE(found.size() == 1);
    CHECK(found[0].step == 5);
    CHECK(verify_checkpoint(found[0].path).has_value());
  }

  TEST_CASE("a run in an older run's directory keeps its own, and says that it is behind") {
    TempDir directory;
    save_two(directory.path());  // steps 3 and 6
    std::vector<std::string> notices;
    std::vector<Normalised> nets = make_nets(1);
    on_ranks(1, [&](ProcessGroup group) {
      Program program(group, nets[0]);
      Checkpointer checkpointer(
          group, {.directory = directory.path(),
                  .keep_last = 1,
                  .notify = [&](const std::string& sentence) { notices.push_back(sentence); }});
      for (int step = 1; step <= 2; ++step) {
        program.train(1);
        checkpointer.save(program.state());
        checkpointer.wait();
        expect(fs::exists(fs::path(directory.path()) / ("step-00000000000" + std::to_string(step))),
               "what was saved is there");
      }
    });
    REQUIRE(notices.size() == 1);
    CHECK(notices[0].starts_with(directory.path() +
                                 " has a checkpoint of step 6, ahead of this run's step 1: "));
    std::vector<FoundCheckpoint> found = list_checkpoints(directory.path());
    REQUIRE(found.size() == 3);
    CHECK(found[2].step == 2);
  }

  TEST_CASE("a checkpoint is loaded beside a training, which goes on") {
    TempDir directory;
    save_two(directory.path());
    const fs::path under_way = fs::path(directory.path()) / unfinished_name(9, ::getppid());
    fs::create_directory(under_way);
    fs::resize_file(fs::path(directory.path()) / "step-000000000006" / "model.safetensors", 100);
    std::vector<Normalised> nets = make_nets(2);
    Checkpointer second({.directory = directory.path()});
    Progress progress;
    CHECK(load_checkpoint({.model = *nets[0], .progress = &progress}, directory.path())
              .progress.step == 3);
    CHECK(load_checkpoint({.model = *nets[1], .progress = &progress},
                          fs::path(directory.path()) / "step-000000000003")
              .path.filename() == "step-000000000003");
    CHECK(torch::equal(nets[0]->parameters()[0], nets[1]->parameters()[0]));
    CHECK(fs::exists(under_way));
    CHECK(fs::exists(fs::path(directory.path()) / "step-000000000006"));
    CHECK_THROWS_WITH_AS(load_checkpoint({.model = *nets[0]}, directory.path() + "/none"),
                         ("load a checkpoint: " + directory.path() + "/none has none").c_str(),
                         DdpError);
  }

  TEST_CASE("a run does not begin anew where there are checkpoints that it cannot read") {
    TempDir directory;
    save_two(directory.path());
    for (const FoundCheckpoint& found : list_checkpoints(directory.path())) {
      fs::resize_file(found.path / "model.safetensors", 100);
    }
    std::vector<Normalised> nets = make_nets(2);
    auto resume = [&](Checkpointer& checkpointer, ProcessGroup group) {
      return checkpointer.resume({.model = *net_of(nets, group)});
    };
    CHECK(refusal(directory.path(), resume) ==
          "resume: " + directory.path() +
              ": none of its 2 checkpoints is good; move them away to begin anew");
    const std::string file = directory.path() + "/file";
    std::ofstream(file) << "no folder";
    CHECK(refusal(file, resume) == "resume: read " + file + ": Not a directory");
  }

  TEST_CASE("keep_last checkpoints stay") {
    TempDir directory;
    std::vector<Normalised> nets = make_nets(1);
    on_ranks(1, [&](ProcessGroup group) {
      Program program(group, nets[0]);
      Checkpointer checkpointer(group, {.directory = directory.path(), .keep_last = 2});
      for (int i = 0; i < 4; ++i) {
        program.train(1);
        checkpointer.save(program.state());
      }
    });
    std::vector<FoundCheckpoint> found = list_checkpoints(directory.path());
    REQUIRE(found.size() == 2);
    CHECK(found[0].step == 4);
    CHECK(found[1].step == 3);
  }

  TEST_CASE("the best by a metric and every so many stay, and the best is loaded") {
    TempDir directory;
    std::vector<Normalised> nets = make_nets(3);
    std::vector<torch::Tensor> third;
    on_ranks(1, [&](ProcessGroup group) {
      Program program(group, nets[0]);
      Checkpointer checkpointer(group, {.directory = directory.path(),
                                        .keep_last = 1,
                                        .keep_every = 5,
                                        .keep_best = Best::Highest});
      for (double accuracy : {0.2, std::nan(""), 0.9, 0.5, 0.4, 0.3, 0.3}) {
        program.train(1);
        checkpointer.save(program.state(), accuracy);
        if (accuracy == 0.9) third = values_of(nets[0]);
      }
    });
    std::string steps;
    for (const FoundCheckpoint& found : list_checkpoints(directory.path())) {
      steps += std::to_string(found.step) + " ";
    }
    CHECK(steps == "7 5 3 ");
    Progress progress;
    const Resumed best =
        load_best({.model = *nets[1], .progress = &progress}, directory.path(), Best::Highest);
    CHECK(best.progress.step == 3);
    CHECK(are_equal(values_of(nets[1]), third));
    CHECK(load_best({.model = *nets[2], .progress = &progress}, directory.path(), Best::Lowest)
              .progress.step == 7);

    TempDir unmeasured;
    save_two(unmeasured.path());
    CHECK(problem_of([&] { load_best({.model = *nets[1]}, unmeasured.path(), Best::Lowest); }) ==
          "load a checkpoint: " + unmeasured.path() + " has none that was saved with a metric");
  }

  TEST_CASE("a run goes on from the step that is asked for, and then from its own") {
    TempDir directory;
    save_two(directory.path());  // by an earlier run
    // Resumes at step 3, trains two steps, and saves; returns where it began.
    auto run = [&](const std::string& run_uuid, int round, std::int64_t step = 3) {
      StoreHost host;
      ddprun::worker::WorkerEnv env = env_of(0, 1, host.port());
      env.run_uuid = run_uuid;
      env.round = round;
      ProcessGroup group = init_process_group({}, env);
      std::vector<Normalised> nets = make_nets(1);
      Program program(group, nets[0]);
      Checkpointer checkpointer(
          group,
          {.directory = directory.path(), .keep_last = 9, .notify = [](const std::string&) {}});
      const std::int64_t begun =
          checkpointer.resume(program.state(), {.step = step}).value().progress.step;
      program.train(2);
      checkpointer.save(program.state());
      checkpointer.wait();
      return begun;
    };
    CHECK(run("run", 0) == 3);
    CHECK(run("run", 1) == 5);  // a restart; step 6 is another run's
    CHECK(run("another run", 0) == 3);
    CHECK(problem_of([&] { run("a third run", 0, 4); }) ==
          "resume: " + directory.path() +
              " has no checkpoint of step 4; it has those of 7, 6, 5, 3");
    fs::resize_file(fs::path(directory.path()) / "step-000000000003" / "model.safetensors", 100);
    CHECK(problem_of([&] {
            run("a third run", 0);
          }).starts_with("resume: " + directory.path() + "/step-000000000003: "));
    CHECK(fs::exists(fs::path(directory.path()) / "step-000000000003"));  // not moved aside
  }

  TEST_CASE("a program that goes back to a step gets it, and a restart says why it does not") {
    TempDir directory;
    StoreHost host;
    {
      Small run(lone_rank(host, "run"), directory.path(), 9);
      for (int step = 1; step <= 6; ++step) run.save(step);
      CHECK(run.resume(3) == 3);
      CHECK(run.notices.empty());
      CHECK(problem_of([&] { run.resume(77); }) ==
            "resume: " + directory.path() +
                " has no checkpoint of step 77; it has those of 6, 5, 4, 3, 2, 1");
      run.save(4);
      REQUIRE(run.notices.size() == 1);  // or a crash would take it back to what it has left
      CHECK(run.notices[0].find("has a checkpoint of step 6, ahead of this run's step 4") !=
            std::string::npos);
    }
    for (std::int64_t step : {3, 77}) {
      StoreHost next_host;
      Small restart(lone_rank(next_host, "run", 1), directory.path(), 9);
      CHECK(restart.resume(step) == 6);
      REQUIRE(restart.notices.size() == 1);
      CHECK(restart.notices[0] ==
            "resume: goes on from step 6 and not from step " + std::to_string(step) +
                ", which was asked for" + (step == 77 ? " and is not there" : "") +
                ": this run has saved since, and a restart goes on from its own newest checkpoint");
      CHECK(restart.resume(3) == 3);  // which is no restart
    }
    Small alone(directory.path(), 9);  // who cannot tell a restart from a new run
    CHECK(alone.resume(2) == 2);
    CHECK(alone.notices.empty());
  }

  TEST_CASE("pruning beside a load does not make it fail, nor speak of damage") {
    TempDir directory;
    Progress progress{.step = 1};
    torch::nn::Linear net(2, 1);
    const fs::path base = directory.path();
    {
      Checkpointer checkpointer({.directory = directory.path()});
      checkpointer.save({.model = *net, .progress = &progress});
    }
    fs::copy(base / "step-000000000001", base / "spare");
    std::ostringstream said;
    std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
    constexpr int kLoads = 2000;
    std::atomic<int> loads = 0;
    std::atomic<int> swaps = 0;
    // As a training with keep_last = 1: the next one comes, then the last one goes. Twice for each
    // load, at any moment of it.
    std::thread training([&] {
      auto name = [&](int number) {
        const std::string digits = std::to_string(number);
        return base / ("step-" + std::string(12 - digits.size(), '0') + digits);
      };
      while (loads < kLoads) {
        if (swaps >= 2 * loads) continue;
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::microseconds(7 * (swaps.load() % 97));
        while (std::chrono::steady_clock::now() < until) continue;
        const int number = 1 + swaps++;
        fs::rename(base / "spare", name(number + 1));
        fs::rename(name(number), base / "spare");
      }
    });
    std::string problem;
    while (loads < kLoads) {
      if (problem.empty()) {
        problem = problem_of([&] { load_checkpoint({.model = *net}, directory.path()); });
      }
      ++loads;
    }
    training.join();
    std::cerr.rdbuf(before);
    CHECK(problem == "");
    CHECK(said.str() == "");
  }

  TEST_CASE("a run in the folder of a live one removes nothing of it, and says that it is there") {
    TempDir directory;
    StoreHost host;
    StoreHost other_host;
    Small first(lone_rank(host, "first"), directory.path(), 3);
    for (int step = 1; step <= 3; ++step) first.save(step);
    Small second(lone_rank(other_host, "second"), directory.path(), 1);
    CHECK(second.resume() == 3);
    second.save(4);
    CHECK(steps_in(directory.path()) == "4 3 2 1 ");  // that the first is over is not known yet
    first.save(5);
    CHECK(steps_in(directory.path()) == "5 4 3 2 ");  // it removes its own, not the second's
    for (int step = 6; step <= 8; ++step) second.save(step);
    CHECK(steps_in(directory.path()) == "8 5 3 2 ");
    REQUIRE(second.notices.size() == 1);
    CHECK(second.notices[0] ==
          directory.path() +
              "/step-000000000005 was written by another run (first) since this one began: give "
              "each run a directory of its own; this run removes none of the other's checkpoints");
    REQUIRE(!first.notices.empty());
    CHECK(first.notices.back().find("was written by another run (second)") != std::string::npos);
  }

  TEST_CASE("a run that is over is pruned by the next one in its folder") {
    TempDir directory;
    StoreHost host;
    {
      Small first(lone_rank(host, "first"), directory.path(), 3);
      for (int step = 1; step <= 3; ++step) first.save(step);
    }
    StoreHost other_host;
    Small second(lone_rank(other_host, "second"), directory.path(), 2);
    CHECK(second.resume() == 3);
    second.save(4);
    second.save(5);
    second.save(6);
    CHECK(steps_in(directory.path()) == "6 5 ");
    CHECK(second.notices.empty());
    StoreHost restarted_host;  // which goes on pruning at once
    Small restarted(lone_rank(restarted_host, "second", 1), directory.path(), 2);
    CHECK(restarted.resume() == 6);
    restarted.save(7);
    CHECK(steps_in(directory.path()) == "7 6 ");
  }

  TEST_CASE("what each rank has of its own comes back to it") {
    for (bool sharded : {false, true}) {
      CAPTURE(sharded);
      TempDir directory;
      const std::vector<int> rows{2, 3};
      std::vector<PartlyOwn> nets = partly_own(rows);
      std::vector<PartlyOwn> resumed = partly_own(rows);
      on_ranks(2, [&](ProcessGroup group) {
        const auto place = static_cast<std::size_t>(group.rank());
        const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
        torch::optim::SGD optimizer(nets[place]->parameters(), options);
        Checkpointer checkpointer(group, {.directory = directory.path(), .sharded = sharded});
        train(nets[place], group, optimizer, 0);
        checkpointer.save({.model = *nets[place], .optimizer = &optimizer});
        checkpointer.wait();
        torch::optim::SGD another(resumed[place]->parameters(), options);
        expect(checkpointer.resume({.model = *resumed[place], .optimizer = &another}).has_value(),
               "there is a checkpoint");
        expect(are_same(nets[place], resumed[place]), "the tensors are this rank's");
        train(nets[place], group, optimizer, 2);
        train(resumed[place], group, another, 2);
        expect(are_same(nets[place], resumed[place]), "so is the momentum");
      });
      PartlyOwn evaluated(2);  // a program of one process is rank 0
      load_checkpoint({.model = *evaluated}, directory.path());
      CHECK(evaluated->seen[0].item<float>() == 2);
    }
  }

  TEST_CASE("on another number of ranks a new one takes what rank 0 had of its own") {
    TempDir directory;
    std::vector<PartlyOwn> nets = partly_own({2, 2});
    on_ranks(2, [&](ProcessGroup group) {
      PartlyOwn& net = nets[static_cast<std::size_t>(group.rank())];
      torch::optim::Adam optimizer(net->parameters());
      Checkpointer checkpointer(group, {.directory = directory.path()});
      train(net, group, optimizer, 0);
      checkpointer.save({.model = *net, .optimizer = &optimizer});
    });
    std::vector<PartlyOwn> resumed = partly_own({2, 2, 2});
    on_ranks(3, [&](ProcessGroup group) {
      PartlyOwn& net = resumed[static_cast<std::size_t>(group.rank())];
      torch::optim::Adam optimizer(net->parameters());
      Checkpointer checkpointer(group, {.directory = directory.path()});
      checkpointer.resume({.model = *net, .optimizer = &optimizer});
    });
    CHECK(!torch::equal(nets[0]->own, nets[1]->own));
    CHECK(are_same(resumed[0], nets[0]));
    CHECK(are_same(resumed[1], nets[1]));
    CHECK(are_same(resumed[2], nets[0]));
  }

  TEST_CASE("a model that is another one on each rank is not saved, unless it is said to be") {
    for (bool sharded : {false, true}) {
      TempDir directory;
      std::vector<PartlyOwn> nets = partly_own({2, 3});
      const std::vector<std::string> problems = run_ranks(2, [&](ProcessGroup group) {
        Checkpointer checkpointer(group, {.directory = directory.path(), .sharded = sharded});
        checkpointer.save({.model = *nets[static_cast<std::size_t>(group.rank())]});
        checkpointer.wait();
      });
      CHECK(problems[0] ==
            "save a checkpoint: 'own' of the model is Float [2, 3] on rank 0 and Float [3, 3] on "
            "rank 1: name what each rank has of its own in DataParallelOptions::ignored, before "
            "the first save");
      CHECK(problems[1] == problems[0]);
      CHECK(list_checkpoints(directory.path()).empty());
    }
  }

  TEST_CASE("a checkpoint of a newer version is left where it is, and no older one taken up") {
    TempDir directory;
    save_two(directory.path());
    const std::string newest = directory.path() + "/step-000000000006";
    std::ofstream(newest + "/manifest.json") << R"({"format": 2, "step": 6})";
    std::vector<Normalised> nets = make_nets(2);
    CHECK(refusal(directory.path(),
                  [&](Checkpointer& checkpointer, ProcessGroup group) {
                    return checkpointer.resume({.model = *net_of(nets, group)});
                  }) ==
          "resume: " + newest + ": it has format 2, of a newer ddprun; this one reads format 1");
    CHECK(fs::exists(newest));
  }

  TEST_CASE("what could not be given back is not saved") {
    TempDir directory;
    Normalised net;
    Progress progress;
    std::map<std::string, at::Tensor> own;
    Checkpointer checkpointer({.directory = directory.path(), .format = TensorFormat::Pt});
    auto refused = [&](const TrainingState& state) {
      std::string said;
      try {
        checkpointer.save(state);
        checkpointer.wait();
      } catch (const DdpError& error) {
        said = error.what();
      }
      return said;
    };
    progress.step = -1;
    CHECK(refused({.model = *net, .progress = &progress}) ==
          "save a checkpoint: its step is -1: steps are counted from 0");
    progress.step = 1;
    own["caf\xe9"] = torch::ones({1});
    CHECK(refused({.model = *net, .progress = &progress, .tensors = &own})
              .ends_with("the name of a tensor is no UTF-8: 'caf\\xe9'"));
    struct Ambiguous : torch::nn::Module {
      Ambiguous() {
        register_parameter("a", torch::ones({1}));
        register_parameter("a/b", torch::ones({1}));
      }
    } ambiguous;
    torch::optim::Adam adam(ambiguous.parameters());
    CHECK(
        refused({.model = ambiguous, .optimizer = &adam, .progress = &progress})
            .ends_with("the state of the parameter 'a/b' could not be told from that of 'a': give "
                       "one of them a name without '/'"));
    CHECK(list_checkpoints(directory.path()).empty());
  }

  TEST_CASE("another optimizer is refused, also where its state has the same names") {
    TempDir directory;
    Normalised net;
    Progress progress{.step = 1, .epoch = 0, .values = {}, .texts = {}};
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    Checkpointer checkpointer({.directory = directory.path(), .asynchronous = false});
    checkpointer.save({.model = *net, .optimizer = &sgd, .progress = &progress});
    auto refused = [&](torch::optim::Optimizer& optimizer) {
      std::string said;
      try {
        checkpointer.resume({.model = *net, .optimizer = &optimizer, .progress = &progress});
      } catch (const DdpError& error) {
        said = error.what();
      }
      return said.substr(said.find("the checkpoint has"));
    };
    torch::optim::Adam adam(net->parameters());
    CHECK(refused(adam) == "the checkpoint has the state of SGD, and this optimizer is Adam");
    std::vector<torch::Tensor> all = net->parameters();
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<torch::Tensor>(all.begin(), all.begin() + 1));
    groups.emplace_back(std::vector<torch::Tensor>(all.begin() + 1, all.end()));
    torch::optim::SGD two(groups, torch::optim::SGDOptions(0.1));
    CHECK(refused(two) ==
          "the checkpoint has the state of SGD, and this optimizer is SGD, 2 groups of "
          "parameters");
  }

  TEST_CASE("another program's checkpoint is refused on all ranks, with what differs") {
    TempDir directory;
    save_two(directory.path());
    const std::string prefix = "resume from " + directory.path() + "/step-000000000006: ";

    std::vector<torch::nn::Sequential> nets;
    for (int rank = 0; rank < 2; ++rank) nets.emplace_back(torch::nn::Linear(2, 2));
    CHECK(refusal(directory.path(), [&](Checkpointer& checkpointer, ProcessGroup group) {
            return checkpointer.resume({.model = *nets[static_cast<std::size_t>(group.rank())]});
          }) == prefix + "it has no '0.weight', which the model has");

    std::vector<Normalised> wider = make_nets(2);
    for (Normalised& net : wider) {
      net->out = net->replace_module("out", torch::nn::Linear(16, 4));
    }
    CHECK(refusal(directory.path(), [&](Checkpointer& checkpointer, ProcessGroup group) {
            return checkpointer.resume({.model = *net_of(wider, group)});
          }) == prefix + "'out.weight' is Float [3, 16] in it and Float [4, 16] in the model");

    std::vector<torch::nn::Conv2d> parts({torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3)),
                                          torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3))});
    std::vector<torch::nn::Sequential> smaller;
    for (torch::nn::Conv2d& part : parts) {
      smaller.emplace_back();
      smaller.back()->push_back("conv", part);
    }
    CHECK(refusal(directory.path(), [&](Checkpointer& checkpointer, ProcessGroup group) {
            return checkpointer.resume({.model = *smaller[static_cast<std::size_t>(group.rank())]});
          }) == prefix + "it has 'norm.bias', which the model has not");

    std::vector<Normalised> others = make_nets(2);
    CHECK(
        refusal(directory.path(), [&](Checkpointer& checkpointer, ProcessGroup group) {
          Program program(group, net_of(others, group), Kind::Adam);
          return checkpointer.resume(program.state());
        }) == prefix + "the checkpoint has the state of SGD, and this optimizer is Adam, amsgrad");

    CHECK(refusal(directory.path(),
                  [&](Checkpointer& checkpointer, ProcessGroup group) {
                    Program program(group, net_of(others, group));
                    program.sampler =
                        ElasticSampler::make({.sample_count = 10, .step_size = 6}).value();
                    return checkpointer.resume(program.state());
                  }) ==
          prefix +
              "the sampler that was saved had 40 samples and this one 10: go on with "
              "the same, or set on_change to RestartEpoch, which begins epoch 0 anew");
  }

  TEST_CASE("a save that fails says so on all ranks") {
    TempDir directory;
    const std::string file = directory.path() + "/file";
    std::ofstream(file) << "no folder";
    std::vector<Normalised> nets = make_nets(2);
    CHECK(refusal(file, [&](Checkpointer& checkpointer, ProcessGroup group) {
            Program program(group, net_of(nets, group));
            checkpointer.save(program.state());
            checkpointer.wait();
            return std::nullopt;
          }) == "save a checkpoint: create " + file + ": Not a directory");

    CHECK(refusal(file, [&](Checkpointer& checkpointer, ProcessGroup group) {
            Program program(group, net_of(nets, group));
            checkpointer.save(program.state());
            checkpointer.save(program.state());  // learns of the first
            return std::nullopt;
          }) == "save a checkpoint: create " + file + ": Not a directory");

    CHECK(refusal(directory.path(),
                  [&](Checkpointer& checkpointer, ProcessGroup group) {
                    Normalised& net = net_of(nets, group);
                    OwnOptimizer optimizer(net->parameters());
                    checkpointer.save({.model = *net, .optimizer = &optimizer});
                    return std::nullopt;
                  }) ==
          "save a checkpoint: the state of an optimizer of the program's own cannot be known: only "
          "that of SGD, Adam, AdamW, RMSprop, Adagrad and LBFGS; leave `optimizer` null and give "
          "its tensors as `tensors`");
    CHECK(list_checkpoints(directory.path()).empty());
  }

  TEST_CASE("failures become notices where the program tolerates them") {
    TempDir directory;
    const std::string file = directory.path() + "/file";
    std::ofstream(file) << "no folder";
    for (bool asynchronous : {true, false}) {
      std::vector<Normalised> nets = make_nets(2);
      std::vector<std::string> notices;
      on_ranks(2, [&](ProcessGroup group) {
        Program program(group, net_of(nets, group));
        Checkpointer checkpointer(
            group, {.directory = file,
                    .asynchronous = asynchronous,
                    .tolerate_failures = true,
                    .notify = [&](const std::string& sentence) { notices.push_back(sentence); }});
        checkpointer.save(program.state());
        program.train(1);
      });
      CHECK(notices ==
            std::vector<std::string>{"save a checkpoint: create " + file + ": Not a directory"});
    }
  }

  TEST_CASE("training on while a save is written does not change what is saved") {
    TempDir directory;
    std::vector<Normalised> nets = make_nets(1);
    std::vector<torch::Tensor> saved;
    on_ranks(1, [&](ProcessGroup group) {
      Program program(group, nets[0], Kind::Adam);
      Checkpointer checkpointer(group, {.directory = directory.path(), .keep_last = 10});
      for (int i = 0; i < 5; ++i) {
        program.train(1);
        saved = values_of(nets[0]);
        checkpointer.save(program.state());
        for (torch::Tensor& tensor : nets[0]->parameters()) tensor.data().fill_(7);
        for (torch::Tensor& tensor : nets[0]->buffers()) tensor.fill_(7);
        checkpointer.resume(program.state());  // waits for the save
        expect(are_equal(values_of(nets[0]), saved), "what was saved comes back");
      }
    });
    for (const FoundCheckpoint& found : list_checkpoints(directory.path())) {
      CHECK(verify_checkpoint(found.path).has_value());
    }
    CHECK(list_checkpoints(directory.path()).size() == 5);
  }

  TEST_CASE("a schedule's learning rate comes back") {
    TempDir directory;
    std::vector<Normalised> nets = make_nets(1);
    on_ranks(1, [&](ProcessGroup group) {
      Checkpointer checkpointer(group, {.directory = directory.path()});
      Program program(group, nets[0]);
      program.optimizer->param_groups()[0].options().set_lr(0.0125);
      checkpointer.save(program.state());
      Program successor(group, nets[0]);
      checkpointer.resume(successor.state());
      expect(successor.optimizer->param_groups()[0].options().get_lr() == 0.0125, "it is restored");
    });
  }

  TEST_CASE("a scheduler, texts, tensors of the program's own and a bucket layout come back") {
    for (TensorFormat format : {TensorFormat::Safetensors, TensorFormat::Pt}) {
      TempDir directory;
      torch::nn::Linear net(2, 2);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      torch::optim::StepLR scheduler(optimizer, /*step_size=*/3, /*gamma=*/0.5);
      std::map<std::string, torch::Tensor> own{{"mean", torch::arange(3.0)}};
      Progress progress{.step = 4, .texts = {{"name", "r\xc3\xa9sum\xc3\xa9"}}};
      BucketLayout buckets{{1}, {0}};
      for (int i = 0; i < 4; ++i) scheduler.step();
      {
        Checkpointer checkpointer({.directory = directory.path(), .format = format});
        checkpointer.save({.model = *net,
                           .optimizer = &optimizer,
                           .scheduler = &scheduler,
                           .progress = &progress,
                           .tensors = &own,
                           .buckets = &buckets});
      }
      torch::nn::Linear new_net(2, 2);
      torch::optim::SGD new_optimizer(new_net->parameters(), 0.1);
      torch::optim::StepLR new_scheduler(new_optimizer, 3, 0.5);
      std::map<std::string, torch::Tensor> new_own{{"gone", torch::ones({1})}};
      Progress new_progress;
      BucketLayout new_buckets;
      Checkpointer checkpointer({.directory = directory.path()});
      CHECK(checkpointer.resume({.model = *new_net,
                                 .optimizer = &new_optimizer,
                                 .scheduler = &new_scheduler,
                                 .progress = &new_progress,
                                 .tensors = &new_own,
                                 .buckets = &new_buckets}));
      CHECK(torch::equal(new_net->weight, net->weight));
      CHECK(new_progress.texts == progress.texts);
      CHECK(new_buckets == buckets);
      REQUIRE(new_own.size() == 1);
      CHECK(torch::equal(new_own["mean"], own["mean"]));
      for (int i = 0; i < 5; ++i) {
        scheduler.step();
        new_scheduler.step();
        CHECK(new_optimizer.param_groups()[0].options().get_lr() ==
              optimizer.param_groups()[0].options().get_lr());
      }
    }
  }

  TEST_CASE("LBFGS goes on from what it remembers") {
    torch::optim::LBFGSOptions options(0.5);
    options.max_iter(3).history_size(4).line_search_fn("strong_wolfe");
    TempDir directory;
    torch::nn::Linear net(3, 2);
    torch::optim::LBFGS optimizer(net->parameters(), options);
    minimise(net, optimizer, 2);
    {
      Checkpointer checkpointer({.directory = directory.path()});
      checkpointer.save({.model = *net, .optimizer = &optimizer});
    }
    torch::nn::Linear new_net(3, 2);
    torch::optim::LBFGS new_optimizer(new_net->parameters(), options);
    Checkpointer checkpointer({.directory = directory.path()});
    REQUIRE(checkpointer.resume({.model = *new_net, .optimizer = &new_optimizer}));
    std::vector<torch::Tensor> at_the_save = {net->weight.detach().clone()};
    const std::vector<torch::Tensor> end = minimise(net, optimizer, 2);
    CHECK(!torch::equal(end[0], at_the_save[0]));
    CHECK(are_equal(minimise(new_net, new_optimizer, 2), end));

    // Without what it remembers it would have gone elsewhere.
    torch::nn::Linear bare_net(3, 2);
    torch::optim::LBFGS bare_optimizer(bare_net->parameters(), options);
    REQUIRE(checkpointer.resume({.model = *bare_net}));
    CHECK(!are_equal(minimise(bare_net, bare_optimizer, 2), end));
  }

  TEST_CASE("a learning rate that waits for a plateau goes on waiting") {
    TempDir directory;
    torch::nn::Linear net(2, 2);
    auto make_scheduler = [](torch::optim::Optimizer& optimizer) {
      return torch::optim::ReduceLROnPlateauScheduler(
          optimizer, torch::optim::ReduceLROnPlateauScheduler::min, /*factor=*/0.5, /*patience=*/2,
          1e-4, torch::optim::ReduceLROnPlateauScheduler::rel, /*cooldown=*/2);
    };
    // The last of the losses is the one that ends the patience, or comes in the cooldown.
    for (const std::vector<float>& losses :
         {std::vector<float>{}, std::vector<float>{1, 0.7F, 0.7F, 0.8F},
          std::vector<float>{1, 1, 1, 1, 1}}) {
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      auto scheduler = make_scheduler(optimizer);
      for (float loss : losses) scheduler.step(loss);
      {
        Checkpointer checkpointer({.directory = directory.path()});
        checkpointer.save({.model = *net, .optimizer = &optimizer, .plateau = &scheduler});
      }
      torch::optim::SGD new_optimizer(net->parameters(), 0.1);
      auto new_scheduler = make_scheduler(new_optimizer);
      Checkpointer checkpointer({.directory = directory.path()});
      REQUIRE(checkpointer.resume(
          {.model = *net, .optimizer = &new_optimizer, .plateau = &new_scheduler}));
      for (float loss : {0.9F, 0.9F, 0.8F, 0.9F, 0.9F, 0.9F, 0.9F, 0.9F}) {
        scheduler.step(loss);
        new_scheduler.step(loss);
        CHECK(new_optimizer.param_groups()[0].options().get_lr() ==
              optimizer.param_groups()[0].options().get_lr());
      }
      CHECK(optimizer.param_groups()[0].options().get_lr() < 0.1);
    }
  }

  TEST_CASE("values that JSON has no number for come back") {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    TempDir directory;
    torch::nn::Linear net(2, 2);
    Progress progress{.values = {{"best loss", kInfinity},
                                 {"best accuracy", -kInfinity},
                                 {"last loss", std::nan("")},
                                 {"tenth", 0.1}}};
    Checkpointer checkpointer({.directory = directory.path()});
    checkpointer.save({.model = *net, .progress = &progress});
    Progress restored;
    REQUIRE(checkpointer.resume({.model = *net, .progress = &restored}));
    CHECK(restored.values.size() == 4);
    CHECK(restored.values["best loss"] == kInfinity);
    CHECK(restored.values["best accuracy"] == -kInfinity);
    CHECK(std::isnan(restored.values["last loss"]));
    CHECK(restored.values["tenth"] == 0.1);
  }

  TEST_CASE("random numbers go on where they were, or in a stream of each rank's own") {
    TempDir directory;
    torch::nn::Linear net(2, 2);
    torch::manual_seed(11);
    torch::rand({5});
    Checkpointer checkpointer({.directory = directory.path()});
    checkpointer.save({.model = *net});
    torch::Tensor next = torch::rand({7});
    checkpointer.resume({.model = *net, .random_numbers = false});
    CHECK(!torch::equal(torch::rand({7}), next));
    checkpointer.resume({.model = *net});
    CHECK(torch::equal(torch::rand({7}), next));

    // The generator is the threads' common one, so each is looked at by itself.
    std::vector<torch::nn::Linear> nets{torch::nn::Linear(2, 2), torch::nn::Linear(2, 2)};
    std::vector<std::uint64_t> seeds(2);
    on_ranks(2, [&](ProcessGroup group) {
      Checkpointer of_two(group, {.directory = directory.path()});
      const auto rank = static_cast<std::size_t>(group.rank());
      of_two.resume({.model = *nets[rank]});
      seeds[rank] = stream_seed(11, group.rank(), 0);
    });
    CHECK(seeds[0] != seeds[1]);
    torch::Tensor drawn = torch::rand({7});
    torch::manual_seed(seeds[0]);
    torch::Tensor of_first = torch::rand({7});
    torch::manual_seed(seeds[1]);
    CHECK((torch::equal(drawn, of_first) || torch::equal(drawn, torch::rand({7}))));
  }

  TEST_CASE("ranks stop and save at the same step, whoever was asked") {
    TempDir directory;
    std::vector<Normalised> nets = make_nets(2);
    std::vector<std::int64_t> stopped_at(2);
    on_ranks(2, [&](ProcessGroup group) {
      StopRequests stops(group);
      Program program(group, net_of(nets, group));
      Checkpointer checkpointer(group, {.directory = directory.path(), .keep_last = 10});
      group.barrier();
      for (;;) {
        program.train(1);
        if (group.rank() == 1 && program.progress.step == 3) std::raise(SIGUSR1);
        if (group.rank() == 0 && program.progress.step == 6) std::raise(SIGTERM);
        if (checkpointer.save_if_asked(program.state(), stops)) break;
      }
      stopped_at[static_cast<std::size_t>(group.rank())] = program.progress.step;
      expect(stops.should_stop(), "a stop is answered from then on");
    });
    CHECK(stopped_at[0] == stopped_at[1]);
    std::vector<FoundCheckpoint> found = list_checkpoints(directory.path());
    REQUIRE(found.size() == 2);
    CHECK(found[0].step == stopped_at[0]);
    CHECK(stopped_at[0] <= 8);
    CHECK(found[1].step <= 5);
  }

  TEST_CASE("a program's own process group will do") {
    TempDir directory;
    std::vector<torch::nn::Linear> nets(2, nullptr);
    for (torch::nn::Linear& net : nets) net = torch::nn::Linear(2, 2);
    on_ranks(2, [&](ProcessGroup group) {
      torch::nn::Linear& net = nets[static_cast<std::size_t>(group.rank())];
      Checkpointer checkpointer(group.c10d(), {.directory = directory.path()});
      checkpointer.save({.model = *net});
      expect(checkpointer.resume({.model = *net}).has_value(), "it resumes");
    });
    CHECK(torch::equal(nets[0]->weight, nets[1]->weight));
  }

  TEST_CASE("all ranks are given the same run folder") {
    TempDir base;
    std::vector<std::string> folders(2);
    on_ranks(2, [&](ProcessGroup group) {
      folders[static_cast<std::size_t>(group.rank())] = choose_run_directory(group, base.path());
    });
    CHECK(folders[0] == base.path() + "/none-1");
    CHECK(folders[1] == folders[0]);
  }

  TEST_CASE("a job that Slurm begins again goes on in the folder of its run") {
    TempDir base;
    for (int requeue_count : {0, 1, 2}) {
      StoreHost host;
      ddprun::worker::WorkerEnv env = env_of(0, 1, host.port());
      env.run_id = "slurm-12.0-r" + std::to_string(requeue_count);
      env.job_id = "slurm-12.0";
      env.requeue_count = requeue_count;
      ProcessGroup group = init_process_group({}, env);
      CHECK(choose_run_directory(group, base.path()) == base.path() + "/slurm-12.0-1");
    }
  }

  TEST_CASE("workers that are left over from an earlier round of the run save nothing") {
    TempDir directory;
    auto save_in_round = [&](int round) {
      StoreHost host;
      ddprun::worker::WorkerEnv env = env_of(0, 1, host.port());
      env.run_uuid = "node0-7f3.1";
      env.round = round;
      ProcessGroup group = init_process_group({}, env);
      torch::nn::Linear net(2, 1);
      Checkpointer checkpointer(group, {.directory = directory.path()});
      return problem_of([&] {
        checkpointer.save({.model = *net});
        checkpointer.wait();
      });
    };
    CHECK(save_in_round(2) == "");
    CHECK(save_in_round(1) == "save a checkpoint: " + directory.path() +
                                  "/step-000000000000 was written in round 2 of this run, and this "
                                  "process is left over from round 1: it writes nothing more");
    CHECK(save_in_round(3) == "");
  }

  TEST_CASE("saves are told to the agent, for the timeline of the run") {
    for (bool is_sharded : {false, true}) {
      CAPTURE(is_sharded);
      TempDir directory;
      const std::string file = directory.path() + "/timeline.jsonl";
      ::setenv("DDPRUN_TIMELINE_FILE", file.c_str(), 1);
      std::vector<Normalised> nets = make_nets(2);
      on_ranks(2, [&](ProcessGroup group) {
        Program program(group, net_of(nets, group));
        program.progress.epoch = 2;
        Checkpointer checkpointer(group,
                                  {.directory = directory.path() + "/c", .sharded = is_sharded});
        for (int i = 0; i < 2; ++i) {
          program.train(3);
          checkpointer.save(program.state());
        }
      });
      std::vector<ddprun::worker::TimelineSlice> slices;
      std::ifstream lines(file);
      for (std::string line; std::getline(lines, line);) {
        auto slice = ddprun::worker::parse_timeline_line(line);
        REQUIRE(slice);
        slices.push_back(std::move(*slice));
      }
      REQUIRE(slices.size() == 2);
      CHECK(slices[0].name == "checkpoint");
      CHECK(slices[0].begin <= slices[0].end);
      CHECK(slices[0].end <= slices[1].end);
      std::map<std::string, std::string> facts(slices[1].facts.begin(), slices[1].facts.end());
      CHECK(facts["step"] == "6");
      CHECK(facts["epoch"] == "2");
      CHECK(fs::exists(facts["folder"] + "/manifest.json"));
      std::uint64_t bytes = 0;
      for (const auto& entry : fs::directory_iterator(facts["folder"])) {
        if (entry.path().filename() != "manifest.json") bytes += entry.file_size();
      }
      CHECK(facts["bytes"] == std::to_string(bytes));
    }
    ::unsetenv("DDPRUN_TIMELINE_FILE");
  }

  TEST_CASE("a save that fails is in the timeline, too, and a timeline that fails ends no save") {
    TempDir directory;
    const std::string file = directory.path() + "/timeline.jsonl";
    const std::string blocked = directory.path() + "/blocked";
    std::ofstream(blocked) << "no folder";
    std::vector<Normalised> nets = make_nets(1);
    auto save = [&](const std::string& timeline, const std::string& to) {
      ::setenv("DDPRUN_TIMELINE_FILE", timeline.c_str(), 1);
      on_ranks(1, [&](ProcessGroup group) {
        Program program(group, nets[0]);
        Checkpointer checkpointer(
            group, {.directory = to, .tolerate_failures = true, .notify = [](const auto&) {}});
        checkpointer.save(program.state());
      });
      ::unsetenv("DDPRUN_TIMELINE_FILE");
    };
    save(file, blocked + "/c");
    std::ifstream lines(file);
    std::string line;
    REQUIRE(std::getline(lines, line));
    CHECK(line.find("\"failed checkpoint\"") != std::string::npos);
    CHECK(line.find("problem") != std::string::npos);
    REQUIRE(::mkfifo((directory.path() + "/fifo").c_str(), 0600) == 0);
    for (const char* bad : {"/fifo", "/no/such/file", "/", ""}) {
      const std::string to = directory.path() + "/c" + std::to_string(*bad ? bad[1] : 0);
      save(*bad ? directory.path() + bad : "", to);
      CHECK(list_checkpoints(to).size() == 1);
    }
  }

  TEST_CASE("why a stop was asked for") {
    TempDir folder;
    StoreHost host;
    ddprun::worker::WorkerEnv env = env_of(0, 1, host.port());
    env.stop_file = folder.path() + "/stop_reason";
    ProcessGroup group = init_process_group({}, env);
    CHECK_FALSE(stop_reason(group));
    std::ofstream(env.stop_file) << "preempted\nSlurm has preempted job 12\n10\n";
    auto reason = stop_reason(group);
    REQUIRE(reason);
    CHECK(reason->cause == ddprun::worker::StopCause::Preempted);
    CHECK(reason->seconds_left == 10);
  }

  TEST_CASE("a round after a lost node goes on in the folder of the run") {
    TempDir base;
    for (int round : {0, 1, 2}) {
      StoreHost host;
      ddprun::worker::WorkerEnv env = env_of(0, 1, host.port());
      env.round = round;
      ProcessGroup group = init_process_group({}, env);
      CHECK(choose_run_directory(group, base.path()) == base.path() + "/none-1");
    }
  }
}
