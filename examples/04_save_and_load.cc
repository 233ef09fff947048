// SPDX-License-Identifier: BSD-3-Clause
//
// Save in the middle, load into a model made anew, and go on as if nothing had happened.  The
// Python twin, python/save_and_load.py, prints the same losses.
//
//   ddprun --standalone --nproc-per-node 2 build/release/bin/save_and_load build/checkpoints/demo
//
// Rank 0 writes; every rank calls save() and resume().  Prints the losses of steps 1 to 6, trained
// through, then those of steps 4 to 6 again, from the checkpoint of step 3: they are the same. Each
// run makes a new folder for itself below the one given.
#include <torch/torch.h>

#include <cstdio>
#include <iostream>

#include "worker/ddp/checkpointer.h"
#include "worker/ddp/data_parallel.h"

namespace {

namespace ddp = ddprun::ddp;

constexpr int kSteps = 6;
constexpr int kSavedStep = 3;

torch::nn::Sequential make_model(std::uint64_t seed) {
  torch::manual_seed(seed);
  torch::nn::Sequential net;  // layer by layer: arguments of one call are made in any order
  net->push_back(torch::nn::Linear(10, 10));
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::Linear(10, 5));
  return net;
}

// A model with its optimizer, made anew, and how far it has come.
struct Training {
  ddp::ProcessGroup group;
  torch::nn::Sequential net;
  torch::optim::Adam optimizer{net->parameters(), torch::optim::AdamOptions(0.01)};
  ddp::Progress progress;

  ddp::TrainingState state() {
    return {.model = *net, .optimizer = &optimizer, .progress = &progress};
  }

  void run(ddp::Checkpointer* checkpointer) {
    ddp::DistributedDataParallel<torch::nn::Sequential> model(net, group);
    while (progress.step < kSteps) {
      torch::manual_seed(static_cast<std::uint64_t>(100 * progress.step + group.rank()));
      torch::Tensor inputs = torch::randn({20, 10});
      optimizer.zero_grad();
      torch::Tensor loss = model(inputs).square().mean();
      loss.backward();
      optimizer.step();
      ++progress.step;
      if (checkpointer != nullptr && progress.step == kSavedStep) checkpointer->save(state());

      torch::Tensor mean_loss = loss.detach().clone();
      group.all_reduce(mean_loss);
      if (group.rank() == 0) {
        std::printf("step %lld: loss %.6f\n", static_cast<long long>(progress.step),
                    mean_loss.item<double>() / group.world_size());
      }
    }
  }
};

void train(const std::string& base) {
  ddp::ProcessGroup group = ddp::init_process_group();
  ddp::Checkpointer checkpointer(group, {.directory = ddp::choose_run_directory(group, base)});

  Training first{.group = group, .net = make_model(0)};
  first.run(&checkpointer);

  Training second{.group = group, .net = make_model(1)};  // other parameters, for now
  if (!checkpointer.resume(second.state())) throw ddp::DdpError("there is no checkpoint");
  second.run(nullptr);
  group.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: save_and_load FOLDER" << std::endl;
    return 2;
  }
  try {
    train(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "save_and_load: " << error.what() << std::endl;
    return 1;
  }
}
