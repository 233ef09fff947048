// SPDX-License-Identifier: BSD-3-Clause
//
// The main job: a small conv net learns to read handwritten digits on several ranks, loses one in
// the middle, and ends with the right answer all the same.  What it shows, in this order: joining
// the run, data that is dealt out exactly once, DDP, a checkpoint every epoch and the way back.
//
//   ddprun --standalone --nproc-per-node 2 --max-restarts 3 build/release/bin/train_digits
//          --kill-rank 1 --kill-epoch 3
//
// Rank 0 prints a line for each epoch, and at the end whether all ranks hold the same parameters
// and what has happened.  Exit code: 0; 1 when something failed, the accuracy stayed below 95 % or
// the parameters differ; 2 for bad options; 143 after SIGTERM, with a checkpoint of the last step.
// SIGUSR1 has one written and goes on.
//
// A run that is started anew trains from the beginning, with its checkpoints in a new folder
// <checkpoint-dir>/<run id>-<number>; a restart in the same run goes on from its newest checkpoint.
// --resume FOLDER goes on in the folder of an older run.  Folders of older runs are never touched.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>
#include <thread>

#include "worker/ddp/checkpoint/checkpointer.h"
#include "worker/ddp/checkpoint/crc32c.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/sampler.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr double kWantedAccuracy = 0.95;

struct Options {
  std::string data = "build/data/digits.csv";
  std::int64_t epochs = 8;
  std::int64_t batch_size = 32;  // samples per step, over all ranks
  double lr = 0.05;
  std::uint64_t seed = 1;
  std::string checkpoint_dir = "build/checkpoints/train_digits";
  std::string resume;
  double step_seconds = 0;
  int kill_rank = -1;
  int kill_epoch = 0;
};

void add_options(CLI::App& app, Options& options) {
  const CLI::Range kCount(1, 1000000);
  app.add_option("--data", options.data,
                 "The digits: 64 pixels of 0 to 16 and the label, a line each")
      ->capture_default_str();
  app.add_option("--epochs", options.epochs)->check(kCount)->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Samples per step, over all ranks")
      ->check(kCount)
      ->capture_default_str();
  app.add_option("--lr", options.lr)->check(CLI::Range(1e-9, 1e3))->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--checkpoint-dir", options.checkpoint_dir, "A folder for each run is made in it")
      ->capture_default_str();
  app.add_option("--resume", options.resume, "Go on in this folder of an older run");
  app.add_option("--step-seconds", options.step_seconds,
                 "Makes each step last that long at least, so that one can watch")
      ->check(CLI::Range(0.0, 60.0));
  auto* kill_rank = app.add_option("--kill-rank", options.kill_rank,
                                   "This rank kills itself, in the first attempt only")
                        ->check(CLI::Range(0, 1000000));
  auto* kill_epoch =
      app.add_option("--kill-epoch", options.kill_epoch, "In the middle of this epoch")
          ->check(kCount);
  kill_rank->needs(kill_epoch);
  kill_epoch->needs(kill_rank);
}

struct Digits {
  torch::Tensor images;  // [n, 1, 8, 8], 0 to 1
  torch::Tensor labels;  // [n]

  Digits at(const torch::Tensor& rows) const {
    return {images.index_select(0, rows), labels.index_select(0, rows)};
  }
};

Digits read_digits(const std::string& path) {
  constexpr std::int64_t kColumns = 65;
  std::ifstream file(path);
  if (!file)
    throw ddp::DdpError("cannot read " + path + ": scripts/setup puts it there; or --data");
  std::vector<float> cells;
  for (std::string cell; std::getline(file, cell, ',');) {
    std::istringstream line(cell);  // the last cell of a line comes with the first of the next
    for (float value; line >> value;) cells.push_back(value);
  }
  auto rows = static_cast<std::int64_t>(cells.size()) / kColumns;
  if (rows == 0 || rows * kColumns != static_cast<std::int64_t>(cells.size())) {
    throw ddp::DdpError(path + " is not a table of 65 numbers a line");
  }
  torch::Tensor table = torch::tensor(cells).view({rows, kColumns});
  return {(table.slice(1, 0, 64) / 16).view({rows, 1, 8, 8}), table.select(1, 64).to(torch::kLong)};
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("hidden", hidden);
    register_module("output", output);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv1(x));
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return output(torch::relu(hidden(x.flatten(1))));
  }
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 16, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(16, 32, 3).padding(1)};
  torch::nn::Linear hidden{32 * 4 * 4, 64};
  torch::nn::Linear output{64, 10};
};
TORCH_MODULE(Net);

double accuracy(Net& net, const Digits& digits) {
  torch::NoGradGuard no_grad;
  torch::Tensor right = net(digits.images).argmax(1) == digits.labels;
  return right.to(torch::kDouble).mean().item<double>();
}

// Whether all ranks hold the same parameters, bit for bit; rank 0 says so.
bool parameters_agree(ddp::ProcessGroup& group, Net& net) {
  std::uint32_t sum = 0;
  for (const torch::Tensor& parameter : net->parameters()) {
    torch::Tensor bytes = parameter.detach().contiguous();
    sum = ddp::crc32c(sum, bytes.const_data_ptr(), bytes.nbytes());
  }
  bool agree = true;
  for (const torch::Tensor& other : group.all_gather(torch::tensor(std::int64_t{sum}))) {
    agree = agree && other.item<std::int64_t>() == sum;
  }
  if (group.rank() == 0) {
    std::cout << "parameters " << (agree ? "identical" : "DIFFERENT") << " on "
              << group.world_size() << " ranks: " << std::hex << sum << std::dec << std::endl;
  }
  return agree;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int train(const Options& options) {
  auto start = std::chrono::steady_clock::now();
  ddp::ProcessGroup group = ddp::init_process_group();
  ddp::StopRequests stops(group);
  const bool is_talker = group.rank() == 0;

  Digits digits = read_digits(options.data);
  torch::Tensor rows = torch::arange(digits.labels.size(0));
  Digits test = digits.at(rows.index({rows % 5 == 0}));
  Digits training = digits.at(rows.index({rows % 5 != 0}));
  ddp::ElasticSampler sampler =
      ddp::value_or_throw(ddp::ElasticSampler::make({.sample_count = training.labels.size(0),
                                                     .step_size = options.batch_size,
                                                     .seed = options.seed}));

  torch::manual_seed(options.seed);
  Net net;
  torch::optim::SGD optimizer(net->parameters(),
                              torch::optim::SGDOptions(options.lr).momentum(0.9));

  ddp::Progress progress;
  ddp::BucketLayout buckets;
  ddp::TrainingState state{.model = *net,
                           .optimizer = &optimizer,
                           .sampler = &sampler,
                           .progress = &progress,
                           .buckets = &buckets};
  std::filesystem::path folder = options.resume;
  if (folder.empty()) folder = ddp::choose_run_directory(group, options.checkpoint_dir);
  // So little is saved that there is nothing to gain from doing it in the background.
  ddp::Checkpointer checkpointer(group, {.directory = folder, .asynchronous = false});
  std::optional<ddp::Resumed> resumed = checkpointer.resume(state);
  std::string origin =
      resumed ? "resumed from epoch " + std::to_string(progress.epoch) : "trained from the start";
  if (sampler.state().consumed > 0) {  // saved in the middle of an epoch
    origin += " and " + std::to_string(sampler.state().consumed) + " samples";
  }
  if (is_talker) {
    std::cout << "training on " << training.labels.size(0) << " digits with " << group.world_size()
              << " ranks, " << (resumed ? origin : "from the start") << "; checkpoints in "
              << folder.string() << std::endl;
  }

  ddp::DistributedDataParallel<Net> model(net, group, {.bucket_layout = buckets});
  while (progress.epoch < options.epochs) {
    auto epoch_start = std::chrono::steady_clock::now();
    const std::int64_t step_count = sampler.steps_left();
    const bool dies_here = group.env().restart_count == 0 && group.rank() == options.kill_rank &&
                           progress.epoch + 1 == options.kill_epoch;
    const std::int64_t samples_left = training.labels.size(0) - sampler.state().consumed;
    double loss_sum = 0;
    while (!sampler.is_epoch_done()) {
      ddp::Share share = sampler.next(group.rank(), group.world_size());
      Digits batch = training.at(torch::tensor(share.indices));
      model.zero_grad();
      torch::Tensor loss =
          share.weight * torch::cross_entropy_loss(model.forward(batch.images), batch.labels);
      loss.backward();
      optimizer.step();
      sampler.commit();
      ++progress.step;
      loss_sum += loss.item<double>();
      if (dies_here && sampler.steps_left() <= step_count / 2) std::raise(SIGKILL);
      std::this_thread::sleep_for(std::chrono::duration<double>(options.step_seconds));
      buckets = model.bucket_layout();
      if (checkpointer.save_if_asked(state, stops)) {
        if (is_talker) {
          std::cout << "stopped at step " << progress.step << ", saved" << std::endl;
        }
        return ddp::StopRequests::kExitCode;
      }
    }
    double seconds = seconds_since(epoch_start);
    sampler.next_epoch();
    ++progress.epoch;
    torch::Tensor mean_loss = torch::tensor(
        loss_sum / static_cast<double>(std::max<std::int64_t>(step_count, 1)) / group.world_size());
    group.all_reduce(mean_loss);
    checkpointer.save(state);
    if (is_talker) {
      std::printf("epoch %lld: loss %.4f, test accuracy %.1f %%, %.0f samples/s\n",
                  static_cast<long long>(progress.epoch), mean_loss.item<double>(),
                  100 * accuracy(net, test), static_cast<double>(samples_left) / seconds);
      std::fflush(stdout);
    }
  }

  double reached = accuracy(net, test);
  bool agree = parameters_agree(group, net);
  if (is_talker) {
    std::printf("done after %d restart(s), %s: test accuracy %.1f %%%s; this attempt took %.1f s\n",
                group.env().restart_count, origin.c_str(), 100 * reached,
                reached > kWantedAccuracy ? "" : ", too low", seconds_since(start));
    std::fflush(stdout);
  }
  group.barrier();  // rank 0 may be the host of the store: it leaves with the others
  return agree && reached > kWantedAccuracy ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small conv net on handwritten digits, with all the ranks of a run");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    std::cerr << "train_digits: " << error.what() << " (--help lists the options)" << std::endl;
    return 2;
  }
  try {
    return train(options);
  } catch (const c10::Error& error) {
    std::cerr << "train_digits: " << error.what_without_backtrace() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "train_digits: " << error.what() << std::endl;
  }
  return 1;
}
