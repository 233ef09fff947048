// SPDX-License-Identifier: BSD-3-Clause
//
// The main job: a small conv net learns to read handwritten digits on several ranks, loses one in
// the middle, and ends with the right answer all the same.  What it shows, in this order: joining
// the run, data that is dealt out exactly once, DDP, a checkpoint every epoch and the way back.
//
//   ddprun --standalone --nproc-per-node 2 --max-restarts 3 build/release/bin/train_digits
//          --kill-rank 1 --kill-epoch 3
//
// The ranks train on the CPU; with DDPRUN_BACKEND=nccl each on its GPU.
// Rank 0 prints a line for each epoch, and at the end whether all ranks hold the same parameters
// and what has happened.  Exit code: 0; 1 when something failed, the accuracy stayed below 95 % or
// the parameters differ; 2 for bad options; 143 after SIGTERM, with a checkpoint of the last step.
// SIGUSR1 has one written and goes on.
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "examples/digits.h"
#include "examples/digits_options.h"
#include "worker/data/sampler.h"
#include "worker/ddp/checkpointer.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/process_group.h"

namespace {

namespace ddp = ddprun::ddp;
using digits::Digits;
using digits::Net;

constexpr double kWantedAccuracy = 0.95;

int train(const digits::Options& options) {
  auto start = std::chrono::steady_clock::now();
  ddp::ProcessGroup group = ddp::init_process_group();
  ddp::StopRequests stops(group);
  const bool is_talker = group.rank() == 0;

  Digits digits = digits::read_digits(options.data).to(group.device());
  torch::Tensor rows = torch::arange(digits.labels.size(0), group.device());
  Digits test = digits.at(rows.index({rows % 5 == 0}));
  Digits training = digits.at(rows.index({rows % 5 != 0}));
  ddp::ElasticSampler sampler =
      ddp::value_or_throw(ddp::ElasticSampler::make({.sample_count = training.labels.size(0),
                                                     .step_size = options.batch_size,
                                                     .seed = options.seed}));

  Net net = digits::make_net(options.seed, group.device());
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
      Digits batch = training.at(torch::tensor(share.indices).to(group.device()));
      model.zero_grad();
      torch::Tensor loss = model.weighted(
          torch::cross_entropy_loss(model.forward(batch.images), batch.labels), share.weight);
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
          auto reason = ddp::stop_reason(group);
          std::cout << "stopped at step " << progress.step << ", saved"
                    << (reason ? ": " + reason->words : "") << std::endl;
        }
        return ddp::StopRequests::kExitCode;
      }
    }
    double seconds = digits::seconds_since(epoch_start);
    sampler.next_epoch();
    ++progress.epoch;
    torch::Tensor mean_loss = torch::tensor(
        loss_sum / static_cast<double>(std::max<std::int64_t>(step_count, 1)) / group.world_size());
    group.all_reduce(mean_loss);
    checkpointer.save(state);
    if (is_talker) {
      std::printf("epoch %lld: loss %.4f, test accuracy %.1f %%, %.0f samples/s\n",
                  static_cast<long long>(progress.epoch), mean_loss.item<double>(),
                  100 * digits::accuracy(net, test), static_cast<double>(samples_left) / seconds);
      std::fflush(stdout);
    }
  }

  double reached = digits::accuracy(net, test);
  bool agree = digits::parameters_agree(group, net);
  if (is_talker) {
    std::printf("done after %d restart(s), %s: test accuracy %.1f %%; this attempt took %.1f s\n",
                group.env().restart_count, origin.c_str(), 100 * reached,
                digits::seconds_since(start));
  }
  group.barrier();  // rank 0 may be the host of the store: it leaves with the others
  if (reached > kWantedAccuracy) return agree ? 0 : 1;
  throw ddp::DdpError("the test accuracy is too low: train for more --epochs");
}

}  // namespace

int main(int argc, char** argv) {
  digits::Options options;
  if (std::optional<int> code = digits::parse(argc, argv, options)) return *code;
  try {
    return train(options);
  } catch (const c10::Error& error) {
    std::cerr << "train_digits: " << error.what_without_backtrace() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "train_digits: " << error.what() << std::endl;
  }
  return 1;
}
