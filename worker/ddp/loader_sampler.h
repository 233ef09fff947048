// SPDX-License-Identifier: BSD-3-Clause
//
// An ElasticSampler for LibTorch's data loaders, which read ahead: what they have fetched is not
// yet trained on, and must not count as consumed.
//
//   auto loader = torch::data::make_data_loader(dataset, LoaderSampler(sampler, rank, world_size),
//                                               torch::data::DataLoaderOptions());
//   for (auto& batch : *loader) {
//     double weight = sampler.next(rank, world_size).weight;  // of this batch (Share)
//     ...; optimizer.step();
//     sampler.commit();
//   }
//   sampler.next_epoch();
#pragma once

#include <torch/data/samplers/base.h>

#include <optional>
#include <vector>

#include "worker/data/sampler.h"
#include "worker/ddp/error.h"

namespace ddprun::ddp {

// Gives a loader this rank's share of one step after the other, from the position that `sampler`
// has when the loader begins an epoch.  Batches must come in order (the loader's default).
//
// Threads: those of the loader, one at a time.  Lifetime: `sampler` outlives the loader; what the
// training commits there does not disturb what is read ahead.
class LoaderSampler : public torch::data::samplers::Sampler<> {
 public:
  LoaderSampler(const ElasticSampler& sampler, int rank, int world_size)
      : sampler_(&sampler), ahead_(sampler), rank_(rank), world_size_(world_size) {}

  void reset(std::optional<std::size_t> = std::nullopt) override { ahead_ = *sampler_; }

  // The loader's batch size is not asked: ElasticSampler's step_size says how much a step takes.
  std::optional<std::vector<std::size_t>> next(std::size_t) override {
    if (ahead_.is_epoch_done()) return std::nullopt;
    Share share = ahead_.next(rank_, world_size_);
    ahead_.commit();
    return std::vector<std::size_t>(share.indices.begin(), share.indices.end());
  }

  // The position belongs into a checkpoint (TrainingState::sampler), not into an archive.
  void save(torch::serialize::OutputArchive&) const override { refuse(); }
  void load(torch::serialize::InputArchive&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw DdpError("a data loader's place is kept by a Checkpointer, with the ElasticSampler");
  }

  const ElasticSampler* sampler_;
  ElasticSampler ahead_;
  int rank_;
  int world_size_;
};

}  // namespace ddprun::ddp
