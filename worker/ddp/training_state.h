// SPDX-License-Identifier: BSD-3-Clause
//
// What of a training program a checkpoint keeps.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/data/sampler.h"
#include "worker/ddp/bucket_layout.h"
#include "worker/ddp/stateful.h"

namespace ddprun::ddp {

// How far training has come, and what else the program wants back: a best accuracy, a schedule's
// position.
struct Progress {
  std::int64_t step = 0;   // optimizer steps; names the checkpoint
  std::int64_t epoch = 0;  // epochs completed
  std::map<std::string, double> values{};
  std::map<std::string, std::string> texts{};  // UTF-8; other bytes come back as U+FFFD
};

// What is saved and restored.  References: the objects stay the program's.  What is null is neither
// saved nor restored.
struct TrainingState {
  torch::nn::Module& model;                      // the module itself, not the DDP wrapper
  torch::optim::Optimizer* optimizer = nullptr;  // one of LibTorch's own kinds

  // How often it has stepped; the rates are with the optimizer.  What a scheduler of the program's
  // own keeps beyond that goes into `progress`.
  torch::optim::LRScheduler* scheduler = nullptr;
  torch::optim::ReduceLROnPlateauScheduler* plateau = nullptr;  // which is no LRScheduler
  ElasticSampler* sampler = nullptr;
  Progress* progress = nullptr;

  // The program's own tensors: an average of the weights.  Replaced by those saved.
  std::map<std::string, at::Tensor>* tensors = nullptr;

  // Objects of the program that have a state of their own, by a name without dots: PowerSgdState,
  // PostLocalSgdState, PeriodicModelAverager.
  std::map<std::string, Stateful*> stateful{};

  // Filled in by the program before a save, from DistributedDataParallel::bucket_layout(), and
  // given to the next DistributedDataParallel after a resume: then the run ends with the very bits
  // of one that was never stopped, on as many ranks.
  BucketLayout* buckets = nullptr;

  // Each rank's generators of random numbers, on the CPU and on the GPUs that the model's
  // parameters are on, go on where they were.  Where the number of ranks has changed, each starts a
  // stream of its own.
  bool random_numbers = true;
};

}  // namespace ddprun::ddp
