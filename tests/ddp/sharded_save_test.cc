// SPDX-License-Identifier: BSD-3-Clause
//
// Checkpoints of which each rank writes a part, resumed at other numbers of ranks.
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "tests/support/temp_dir.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/formats/shards.h"
#include "worker/ddp/checkpointer.h"
#include "worker/ddp/zero_optimizer.h"

namespace {

namespace fs = std::filesystem;
using namespace ddprun::ddp;
using namespace ddprun::ddp::test;
using ddprun::test::TempDir;
using torch::optim::AdamOptions;
using ZeroAdam = ZeroRedundancyOptimizer<torch::optim::Adam>;

constexpr char kStep[] = "step-000000000007";

// Nets of other values each; made beforehand, since LibTorch's generator is shared by the threads.
std::vector<Normalised> other_nets(int count) {
  std::vector<Normalised> nets;
  for (int i = 0; i < count; ++i) nets.emplace_back();
  return nets;
}

// A step whose gradients are the parameters themselves, the same on every rank.
void step(Normalised net, torch::optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  torch::Tensor loss = torch::zeros({});
  for (const torch::Tensor& parameter : net->parameters()) {
    loss = loss + parameter.square().sum() / 2;
  }
  loss.backward();
  optimizer.step();
}

// Saves the state of a plain Adam after two steps, by `world_size` ranks.
void save(const std::string& folder, int world_size, bool sharded, Normalised source) {
  std::vector<Normalised> nets = other_nets(world_size);
  on_ranks(world_size, [&](ProcessGroup group) {
    Normalised net = nets[static_cast<std::size_t>(group.rank())];
    const torch::NoGradGuard no_grad;
    for (const auto& item : source->named_parameters()) {
      net->named_parameters()[item.key()].copy_(item.value());
    }
    const torch::AutoGradMode with_grad(true);
    torch::optim::Adam optimizer(net->parameters(), AdamOptions(0.1));
    for (int i = 0; i < 2; ++i) step(net, optimizer);
    Progress progress{.step = 7};
    std::map<std::string, at::Tensor> own{{"mean", torch::arange(5)}};
    Checkpointer checkpointer(group, {.directory = folder, .sharded = sharded});
    checkpointer.save(
        {.model = *net, .optimizer = &optimizer, .progress = &progress, .tensors = &own});
    checkpointer.wait();
  });
}

// The parameters after a resume of `folder` by `world_size` ranks and a further step.
std::vector<torch::Tensor> resumed(const std::string& folder, int world_size, bool with_zero) {
  std::vector<Normalised> nets = other_nets(world_size);
  on_ranks(world_size, [&](ProcessGroup group) {
    Normalised net = nets[static_cast<std::size_t>(group.rank())];
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (with_zero) {
      optimizer = std::make_unique<ZeroAdam>(net->parameters(), group, AdamOptions(0.1));
    } else {
      optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), AdamOptions(0.1));
    }
    Progress progress;
    std::map<std::string, at::Tensor> own;
    Checkpointer checkpointer(group, {.directory = folder});
    const auto found = checkpointer.resume(
        {.model = *net, .optimizer = optimizer.get(), .progress = &progress, .tensors = &own});
    expect(found && progress.step == 7, "there is a checkpoint of step 7");
    expect(torch::equal(own.at("mean"), torch::arange(5)), "the program's own tensor is back");
    step(net, *optimizer);
  });
  for (const Normalised& net : nets) {
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      CHECK(torch::equal(net->parameters()[i], nets[0]->parameters()[i]));
    }
  }
  return nets[0]->parameters();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_SUITE("ddp/sharded_save") {
  TEST_CASE("a sharded checkpoint is that of rank 0, at any number of ranks") {
    const Normalised source = other_nets(1)[0];
    const TempDir plain;
    save(plain.path(), 1, false, source);
    const std::vector<torch::Tensor> wanted = resumed(plain.path(), 1, false);
    for (int writers : {1, 3}) {
      const TempDir sharded;
      save(sharded.path(), writers, true, source);
      CHECK(ddprun::ddp::verify_checkpoint(fs::path(sharded.path()) / kStep).has_value());
      for (int readers : {1, 2, 4}) {
        for (bool with_zero : {false, true}) {
          const std::vector<torch::Tensor> seen = resumed(sharded.path(), readers, with_zero);
          for (std::size_t i = 0; i < wanted.size(); ++i) {
            CHECK(torch::equal(seen[i], wanted[i]));
          }
        }
      }
    }
  }

  TEST_CASE("each rank has a file of about its share, and the hidden folder is gone") {
    const TempDir folder;
    save(folder.path(), 3, true, other_nets(1)[0]);
    CHECK(names_in(folder.path()) == std::vector<std::string>{kStep});
    const std::vector<std::string> names = names_in(fs::path(folder.path()) / kStep);
    for (int rank : {0, 1, 2}) {
      for (const char* part : {"model", "optimizer"}) {
        const std::string name = shard_name(part, rank, 3) + ".safetensors";
        CHECK(std::find(names.begin(), names.end(), name) != names.end());
      }
    }
    CHECK(std::find(names.begin(), names.end(), "model.safetensors") == names.end());
    CHECK(std::find(names.begin(), names.end(), kShardsName) != names.end());
  }

  TEST_CASE("with a sharded optimizer each rank writes the state that it has") {
    const TempDir folder;
    std::vector<Normalised> nets = other_nets(2);
    on_ranks(2, [&](ProcessGroup group) {
      Normalised net = nets[static_cast<std::size_t>(group.rank())];
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : net->parameters()) parameter.fill_(0.5);
      const torch::AutoGradMode with_grad(true);
      ZeroAdam optimizer(net->parameters(), group, AdamOptions(0.1));
      step(net, optimizer);
      Progress progress{.step = 7};
      std::map<std::string, at::Tensor> own{{"mean", torch::arange(5)}};
      Checkpointer checkpointer(group, {.directory = folder.path(), .sharded = true});
      checkpointer.save(
          {.model = *net, .optimizer = &optimizer, .progress = &progress, .tensors = &own});
      expect(!optimizer.has_consolidated_state(), "no rank has gathered it");
      step(net, optimizer);
    });
    const std::vector<torch::Tensor> seen = resumed(folder.path(), 3, true);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      CHECK(torch::equal(seen[i], nets[0]->parameters()[i]));
    }
  }

  TEST_CASE("damage of any rank's file is noticed, and an older checkpoint taken") {
    const TempDir folder;
    save(folder.path(), 2, true, other_nets(1)[0]);
    const fs::path newer = fs::path(folder.path()) / "step-000000000009";
    fs::copy(fs::path(folder.path()) / kStep, newer);
    std::fstream file(newer / (shard_name("model", 1, 2) + ".safetensors"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x7f');
    file.close();
    resumed(folder.path(), 2, false);
    CHECK(names_in(folder.path()) == std::vector<std::string>{".damaged-step-000000000009", kStep});
  }

  TEST_CASE("a part that cannot be written leaves nothing, and every rank says the same") {
    const TempDir folder;
    std::vector<Normalised> nets = other_nets(2);
    const std::vector<std::string> problems = run_ranks(2, [&](ProcessGroup group) {
      // A tensor of which rank 1 has another size than rank 0: the parts do not fit.
      std::map<std::string, at::Tensor> own{{"mean", torch::zeros({4 + 40 * group.rank()})}};
      Checkpointer checkpointer(group, {.directory = folder.path(), .sharded = true});
      checkpointer.save({.model = *nets[static_cast<std::size_t>(group.rank())], .tensors = &own});
    });
    CHECK(problems[0].starts_with("save a checkpoint: the ranks have"));
    CHECK(problems[1] == problems[0]);
    CHECK(names_in(folder.path()).empty());
  }
}
