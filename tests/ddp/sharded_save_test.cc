// SPDX-License-Identifier: BSD-3-Clause
//
// Checkpoints of which each rank writes a part, resumed at other numbers of ranks.
#include <torch/torch.h>

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/ddp/models.h"
#include "tests/ddp/ranks.h"
#include "tests/support/temp_dir.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/formats/shards.h"
#include "worker/ddp/checkpointer.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/post_local_sgd.h"
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

// An optimizer that LibTorch does not know.
struct UnknownOptimizer : torch::optim::Optimizer {
  explicit UnknownOptimizer(std::vector<torch::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  torch::Tensor step(LossClosure) override { return {}; }
};

// Five steps, each rank with inputs of its own.
void train(Normalised net, ProcessGroup group, torch::optim::Optimizer& optimizer, int first) {
  DistributedDataParallel<Normalised> model(net, group);
  for (int i = first; i < first + 5; ++i) {
    model.zero_grad();
    model(inputs(group.rank(), i, {4, 1, 4, 4}) + group.rank()).square().mean().backward();
    optimizer.step();
  }
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct Said {
  int exit_code = -1;
  std::string text;  // stdout, then stderr
};

// What "ddpctl ckpt ARGUMENTS" says.
Said ckpt(const std::string& arguments) {
  const char* bin = std::getenv("DDPRUN_BIN");
  expect(bin != nullptr, "ctest says where ddpctl is");
  const std::string command = std::string(bin) + "/ddpctl ckpt " + arguments + " 2>&1";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  Said said;
  char buffer[4096];
  while (std::size_t size = std::fread(buffer, 1, sizeof buffer, pipe.get())) {
    said.text.append(buffer, size);
  }
  const int status = ::pclose(pipe.release());
  if (WIFEXITED(status)) said.exit_code = WEXITSTATUS(status);
  return said;
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Writes the checkpoint in `folder` anew as that of step 8, with `shards_json` in it, and sums that
// fit.
void rewrite(const fs::path& folder, const std::string& shards_json) {
  Manifest manifest = value_or_throw(inspect_checkpoint(folder / kStep));
  std::vector<std::string> texts;
  for (const FileEntry& file : manifest.files) {
    texts.push_back(file.name == kShardsName ? shards_json : text_of(folder / kStep / file.name));
  }
  std::vector<FileContent> contents;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    contents.push_back({manifest.files[i].name, {texts[i]}});
  }
  manifest.step = 8;
  value_or_throw(publish_checkpoint(folder, manifest, contents));
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
      Normalised net = nets[static_cast<std::size_t>(group.rank())];
      UnknownOptimizer unknown(net->parameters());
      torch::optim::Adam adam(net->parameters(), AdamOptions(0.1));
      // That of rank 1 cannot be saved.
      torch::optim::Optimizer* const optimizer =
          group.rank() == 0 ? static_cast<torch::optim::Optimizer*>(&adam) : &unknown;
      Checkpointer checkpointer(group, {.directory = folder.path(), .sharded = true});
      checkpointer.save({.model = *net, .optimizer = optimizer});
    });
    CHECK(problems[0].starts_with("save a checkpoint: the state of an optimizer of the program's"));
    CHECK(problems[1] == problems[0]);
    CHECK(names_in(folder.path()).empty());
  }

  TEST_CASE("what the ranks may have in different values is rank 0's") {
    for (bool sharded : {false, true}) {
      CAPTURE(sharded);
      const TempDir folder;
      std::vector<Normalised> nets = other_nets(2);
      std::vector<Normalised> resumed = other_nets(2);
      std::map<std::string, at::Tensor> wanted;  // rank 0's buffers when it saved
      on_ranks(2, [&](ProcessGroup group) {
        const auto place = static_cast<std::size_t>(group.rank());
        const bool is_first = group.rank() == 0;
        torch::optim::SGD optimizer(nets[place]->parameters(), 0.1);
        train(nets[place], group, optimizer, 0);
        if (is_first) {
          for (const auto& item : nets[0]->named_buffers()) {
            wanted[item.key()] = item.value().clone();
          }
        }
        std::map<std::string, at::Tensor> own{{"mean", torch::full({8}, group.rank())}};
        // A schedule by a loss of its own may have given each rank another rate.
        optimizer.param_groups()[0].options().set_lr(is_first ? 0.1 : 0.2);
        Checkpointer checkpointer(group, {.directory = folder.path(), .sharded = sharded});
        checkpointer.save({.model = *nets[place], .optimizer = &optimizer, .tensors = &own});
        checkpointer.wait();
        optimizer.param_groups()[0].options().set_lr(0.1);

        torch::optim::SGD another(resumed[place]->parameters(), 0.5);
        checkpointer.resume({.model = *resumed[place], .optimizer = &another, .tensors = &own});
        expect(torch::equal(own.at("mean"), torch::full({8}, 0)), "the tensor is rank 0's");
        expect(another.param_groups()[0].options().get_lr() == 0.1, "the rate is rank 0's");
        for (const auto& item : resumed[place]->named_buffers()) {
          expect(torch::equal(item.value(), wanted.at(item.key())),
                 item.key() + " is rank 0's on rank " + std::to_string(group.rank()));
        }
        train(nets[place], group, optimizer, 5);
        train(resumed[place], group, another, 5);
      });
      for (const auto& item : nets[0]->named_parameters()) {
        CHECK(torch::equal(item.value(), resumed[0]->named_parameters()[item.key()]));
      }
      for (const auto& item : nets[0]->named_buffers()) {
        CHECK(torch::equal(item.value(), resumed[0]->named_buffers()[item.key()]));
      }
    }
  }

  TEST_CASE("with local steps between averages, all is rank 0's") {
    const TempDir folder;
    std::vector<torch::nn::Linear> nets{torch::nn::Linear(64, 64), torch::nn::Linear(64, 64)};
    std::vector<torch::nn::Linear> resumed{torch::nn::Linear(64, 64), torch::nn::Linear(64, 64)};
    on_ranks(2, [&](ProcessGroup group) {
      const auto place = static_cast<std::size_t>(group.rank());
      PeriodicModelAverager averager(group, 4);
      Checkpointer checkpointer(group, {.directory = folder.path(), .sharded = true});
      checkpointer.save({.model = *nets[place], .stateful = {{"averager", &averager}}});
      checkpointer.resume({.model = *resumed[place], .stateful = {{"averager", &averager}}});
    });
    for (const torch::nn::Linear& net : resumed) CHECK(torch::equal(net->weight, nets[0]->weight));
  }

  TEST_CASE("ddpctl lists, shows and verifies it, and converts its files one by one") {
    const TempDir folder;
    save(folder.path(), 3, true, other_nets(1)[0]);
    const std::string step = std::string(folder.path()) + "/" + kStep;

    const Said listed = ckpt("ls " + folder.path());
    CHECK(listed.exit_code == 0);
    CHECK(listed.text.starts_with("step 7  "));
    CHECK(listed.text.find("  3 ranks  ") != std::string::npos);
    CHECK(listed.text.ends_with("  whole  sharded  " + step + "\n"));

    const Said shown = ckpt("show " + folder.path());
    CHECK(shown.exit_code == 0);
    CHECK(shown.text.starts_with(step + ": step 7, saved by 3 ranks with torch "));
    Normalised net;
    for (const auto& item : net->named_parameters()) {
      const std::size_t place = shown.text.find("\n  " + item.key() + "  F32 [");
      REQUIRE_MESSAGE(place != std::string::npos, shown.text);
      const std::string line =
          shown.text.substr(place + 1, shown.text.find('\n', place + 1) - place);
      CHECK_MESSAGE(line.find("  in model-0000") != std::string::npos, line);
      CHECK_MESSAGE(line.find("-of-00003.safetensors") != std::string::npos, line);
    }
    // The values and the data position, and the random numbers, come from files of rank 0.
    CHECK(shown.text.find("random.safetensors: ") != std::string::npos);
    CHECK(shown.text.find("\"step\": 7") != std::string::npos);

    CHECK(ckpt("verify " + folder.path()).text == "good: " + step + "\n");
    CHECK(ckpt("verify " + step).exit_code == 0);

    const std::string part = step + "/model-00001-of-00003";
    const std::string converted = std::string(folder.path()) + "/part.pt";
    CHECK(ckpt("convert " + part + ".safetensors " + converted).exit_code == 0);
    CHECK(ckpt("show " + converted).exit_code == 0);
    const Said whole =
        ckpt("convert --format pt " + folder.path() + " " + folder.path() + "/other");
    CHECK(whole.exit_code == 2);
    CHECK(whole.text ==
          "ddpctl: " + step +
              " is sharded, and only its files can be converted, one by one: resume it, and "
              "save it unsharded\n");
    CHECK(!fs::exists(fs::path(folder.path()) / "other"));
  }

  TEST_CASE("ddpctl names the damage of a sharded checkpoint, as resume() does") {
    const TempDir folder;
    save(folder.path(), 2, true, other_nets(1)[0]);
    const fs::path step = fs::path(folder.path()) / kStep;
    const std::string good = text_of(step / kShardsName);

    SUBCASE("a file that the manifest does not have, and whose sum is nowhere") {
      const std::string name = shard_name("model", 0, 2) + ".safetensors";
      fs::copy(step / name, fs::path(folder.path()) / "beside.safetensors");
      std::string other = good;
      for (std::size_t at; (at = other.find("\"" + name)) != std::string::npos;) {
        other.replace(at, name.size() + 1, "\"../beside.safetensors");
      }
      rewrite(folder.path(), other);
      const Said verified = ckpt("verify " + folder.path());
      CHECK(verified.exit_code == 1);
      CHECK_MESSAGE(
          verified.text.find(
              "shards.json names ../beside.safetensors, which the manifest does not have") !=
              std::string::npos,
          verified.text);
      CHECK(verified.text.ends_with("good: " + step.string() + "\n"));
    }
    SUBCASE("other rows than the file has") {
      Shards shards = value_or_throw(parse_shards(good));
      for (auto& [name, tensor] : shards["model"]) {
        if (tensor.shape.empty()) continue;
        tensor.shape[0] += 1;
        tensor.pieces.back().end += 1;
      }
      rewrite(folder.path(), to_json(shards));
      const Said verified = ckpt("verify " + folder.path());
      CHECK(verified.exit_code == 1);
      CHECK_MESSAGE(verified.text.find(" as shards.json says") != std::string::npos, verified.text);
    }
    SUBCASE("an index that is no JSON") {
      rewrite(folder.path(), "no index");
      const Said verified = ckpt("verify " + folder.path());
      CHECK(verified.exit_code == 1);
      CHECK(verified.text.find("shards.json: it is no JSON, or lacks a field") !=
            std::string::npos);
      CHECK(ckpt("show " + folder.path() + "/step-000000000008").exit_code == 1);
    }
    SUBCASE("a file of a rank that is missing") {
      fs::remove(step / (shard_name("model", 1, 2) + ".safetensors"));
      const Said verified = ckpt("verify " + folder.path());
      CHECK(verified.exit_code == 1);
      CHECK(verified.text.find(shard_name("model", 1, 2)) != std::string::npos);
      CHECK(ckpt("ls " + folder.path()).text.starts_with("damaged: "));
    }
    // Where ddpctl finds damage, resume() passes the checkpoint over: step 7 is left, or nothing.
    if (fs::exists(fs::path(folder.path()) / "step-000000000008")) {
      resumed(folder.path(), 2, false);
      CHECK(fs::exists(fs::path(folder.path()) / ".damaged-step-000000000008"));
    }
  }
}
