// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/loader_sampler.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <set>

namespace {

using namespace ddprun::ddp;

struct Numbers : torch::data::datasets::Dataset<Numbers, std::int64_t> {
  std::int64_t get(std::size_t index) override { return static_cast<std::int64_t>(index); }
  std::optional<std::size_t> size() const override { return 50; }
};

ElasticSampler sampler() {
  return ElasticSampler::make({.sample_count = 50, .step_size = 8, .seed = 4}).value();
}

}  // namespace

TEST_SUITE("ddp/loader_sampler") {
  TEST_CASE("a loader that reads ahead loses no sample when the program stops") {
    std::multiset<std::int64_t> used;
    SamplerState saved;
    for (int rank = 0; rank < 3; ++rank) {  // three steps of the epoch, then a stop
      ElasticSampler place = sampler();
      auto loader = torch::data::make_data_loader(Numbers(), LoaderSampler(place, rank, 3),
                                                  torch::data::DataLoaderOptions().workers(2));
      int steps = 0;
      for (const auto& batch : *loader) {
        Share share = place.next(rank, 3);
        CHECK(std::vector<std::int64_t>(batch.begin(), batch.end()) == share.indices);
        used.insert(batch.begin(), batch.end());
        place.commit();
        if (++steps == 3) break;
      }
      saved = place.state();
    }
    CHECK(saved.consumed == 24);
    for (int rank = 0; rank < 2; ++rank) {  // the rest on two ranks
      ElasticSampler place = sampler();
      REQUIRE(place.restore(saved).has_value());
      auto loader = torch::data::make_data_loader(Numbers(), LoaderSampler(place, rank, 2),
                                                  torch::data::DataLoaderOptions());
      for (const auto& batch : *loader) used.insert(batch.begin(), batch.end());
    }
    CHECK(used.size() == 50);
    CHECK(std::set<std::int64_t>(used.begin(), used.end()).size() == 50);
  }

  TEST_CASE("archives are refused, with where the place is kept") {
    ElasticSampler place = sampler();
    LoaderSampler view(place, 0, 1);
    torch::serialize::OutputArchive archive;
    CHECK_THROWS_AS(view.save(archive), DdpError);
  }
}
