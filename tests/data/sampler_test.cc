// SPDX-License-Identifier: BSD-3-Clause
#include "worker/data/sampler.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace {

using ddprun::ddp::ElasticSampler;
using ddprun::ddp::permutation;
using ddprun::ddp::SamplerOptions;
using ddprun::ddp::Share;

ElasticSampler sampler_of(const SamplerOptions& options) {
  return ElasticSampler::make(options).value();
}

// Plays one step on `world_size` ranks and adds what they take to `taken`.  Returns the sum of the
// weighted means of `values` over the ranks, divided by their number: what DDP makes of a loss.
double play_step(ElasticSampler& sampler, int world_size, const std::vector<double>& values,
                 std::vector<std::int64_t>& taken) {
  double mean_over_ranks = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    Share share = sampler.next(rank, world_size);
    double sum = 0;
    for (std::int64_t index : share.indices) {
      sum += values[static_cast<std::size_t>(index)];
      if (share.weight > 0) taken.push_back(index);
    }
    mean_over_ranks += share.weight * sum / static_cast<double>(share.indices.size()) / world_size;
  }
  sampler.commit();
  return mean_over_ranks;
}

}  // namespace

TEST_SUITE("ddp/sampler") {
  TEST_CASE("a permutation depends on seed and epoch alone, and on both") {
    // Fixed for ever: a checkpoint's position means nothing in another order.
    CHECK(permutation(8, 1, 0) == std::vector<std::int64_t>{4, 2, 0, 5, 6, 1, 7, 3});
    CHECK(permutation(8, 1, 1) != permutation(8, 1, 0));
    CHECK(permutation(8, 2, 0) != permutation(8, 1, 0));
    CHECK(permutation(100, 1, 2) != permutation(100, 2, 1));
    CHECK(permutation(0, 1, 0).empty());
  }

  TEST_CASE("every place of a permutation is equally likely to hold every sample") {
    constexpr int kDraws = 6000;
    constexpr std::int64_t kCount = 6;
    int seen[kCount][kCount] = {};
    for (int draw = 0; draw < kDraws; ++draw) {
      std::vector<std::int64_t> order = permutation(kCount, static_cast<std::uint64_t>(draw), 0);
      for (std::size_t i = 0; i < kCount; ++i) ++seen[i][order[i]];
    }
    for (auto& row : seen) {
      for (int count : row) {
        CHECK(count > 850);  // 1000 expected, with a standard deviation of 29
        CHECK(count < 1150);
      }
    }
  }

  TEST_CASE("the ranks' shares of a step differ by one sample at most") {
    ElasticSampler sampler =
        sampler_of({.sample_count = 100, .step_size = 10, .seed = 0, .shuffle = false});
    CHECK(sampler.next(0, 4).indices == std::vector<std::int64_t>{0, 1, 2});
    CHECK(sampler.next(1, 4).indices == std::vector<std::int64_t>{3, 4, 5});
    CHECK(sampler.next(2, 4).indices == std::vector<std::int64_t>{6, 7});
    CHECK(sampler.next(3, 4).indices == std::vector<std::int64_t>{8, 9});
    CHECK(sampler.next(0, 4).weight == doctest::Approx(1.2));
    CHECK(sampler.next(3, 4).weight == doctest::Approx(0.8));
    CHECK(sampler.next(0, 5).weight == 1.0);
  }

  TEST_CASE("what was taken and not committed is taken again") {
    ElasticSampler sampler = sampler_of({.sample_count = 20, .step_size = 4, .seed = 3});
    Share first = sampler.next(0, 2);
    CHECK(sampler.next(0, 2).indices == first.indices);
    sampler.commit();
    CHECK(sampler.next(0, 2).indices != first.indices);
  }

  TEST_CASE("with drop_partial an epoch ends before a step that would not be full") {
    ElasticSampler sampler =
        sampler_of({.sample_count = 10, .step_size = 4, .seed = 0, .drop_partial = true});
    CHECK(sampler.steps_left() == 2);
    sampler.commit();
    sampler.commit();
    CHECK(sampler.is_epoch_done());
    sampler.next_epoch();
    CHECK(sampler.state().epoch == 1);
    CHECK(sampler.steps_left() == 2);
  }

  TEST_CASE("a sampler goes on from a saved state as the one that saved it") {
    SamplerOptions options{.sample_count = 50, .step_size = 7, .seed = 9};
    ElasticSampler sampler = sampler_of(options);
    sampler.next_epoch();
    sampler.commit();
    ElasticSampler other = sampler_of({.sample_count = 50, .step_size = 7, .seed = 9});
    REQUIRE(other.restore(sampler.state()).has_value());
    CHECK(other.next(1, 3).indices == sampler.next(1, 3).indices);
  }

  TEST_CASE("another data set, seed or order is refused, with both") {
    ElasticSampler sampler = sampler_of({.sample_count = 40, .step_size = 4, .seed = 3});
    sampler.next_epoch();
    sampler.commit();
    const std::pair<SamplerOptions, std::string> cases[] = {
        {{.sample_count = 48, .step_size = 4, .seed = 3}, "40 samples and this one 48"},
        {{.sample_count = 40, .step_size = 4, .seed = 5}, "seed 3 and this one 5"},
        {{.sample_count = 40, .step_size = 4, .seed = 3, .shuffle = false},
         "shuffling and this one no shuffling"},
    };
    for (auto [options, words] : cases) {
      CAPTURE(words);
      ElasticSampler other = sampler_of(options);
      ddprun::Result<void> restored = other.restore(sampler.state());
      REQUIRE(!restored);
      CHECK(
          restored.error().context ==
          "the sampler that was saved had " + words +
              ": go on with the same, or set on_change to RestartEpoch, which begins epoch 1 anew");

      options.on_change = ddprun::ddp::OnChange::RestartEpoch;
      ElasticSampler willing = sampler_of(options);
      ElasticSampler expected = sampler_of(options);
      expected.next_epoch();
      REQUIRE(willing.restore(sampler.state()).has_value());
      CHECK(willing.state() == expected.state());
      CHECK(willing.next(0, 2).indices == expected.next(0, 2).indices);
    }
  }

  TEST_CASE("another step size, and a seed without shuffling, change nothing") {
    ElasticSampler sampler = sampler_of({.sample_count = 40, .step_size = 4, .shuffle = false});
    sampler.commit();
    ElasticSampler other =
        sampler_of({.sample_count = 40, .step_size = 6, .seed = 9, .shuffle = false});
    REQUIRE(other.restore(sampler.state()).has_value());
    CHECK(other.next(0, 1).indices.front() == 4);
  }

  TEST_CASE("options and positions that cannot be are refused by name") {
    CHECK(ElasticSampler::make({.sample_count = 0}).error().context ==
          "sample_count is 0: a sampler needs 1 sample or more");
    CHECK(ElasticSampler::make({.sample_count = 5, .step_size = 0}).error().context ==
          "step_size is 0: a step needs 1 sample or more");
    ElasticSampler sampler = sampler_of({.sample_count = 5});
    CHECK(sampler.restore({.seed = 0, .epoch = 2, .consumed = 6}).error().context ==
          "the data position (epoch 2, sample 6) is not one of a data set of 5 samples");
    CHECK(!sampler.restore({.seed = 0, .epoch = -1, .consumed = 0}));
  }

  TEST_CASE("each sample is taken exactly once, over any history of world sizes and restarts") {
    constexpr unsigned kSeed = 20240117;
    MESSAGE("seed ", kSeed);
    std::mt19937 random(kSeed);
    auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    for (int history = 0; history < 10'000; ++history) {
      SamplerOptions options{.sample_count = pick(1, 60),
                             .step_size = pick(1, 20),
                             .seed = static_cast<std::uint64_t>(history)};
      ElasticSampler sampler = sampler_of(options);
      std::vector<double> values(static_cast<std::size_t>(options.sample_count));
      for (double& value : values) value = pick(-100, 100);
      std::vector<std::int64_t> taken;
      while (!sampler.is_epoch_done()) {
        if (pick(0, 3) == 0) {  // killed, after taking a step that is never committed
          (void)sampler.next(0, pick(1, 9));
          ElasticSampler successor = sampler_of(options);
          REQUIRE(successor.restore(sampler.state()).has_value());
          sampler = successor;
        }
        std::size_t before = taken.size();
        double mean = play_step(sampler, pick(1, 9), values, taken);
        double expected = 0;
        for (std::size_t i = before; i < taken.size(); ++i) {
          expected += values[static_cast<std::size_t>(taken[i])];
        }
        REQUIRE(mean == doctest::Approx(expected / static_cast<double>(taken.size() - before)));
      }
      std::sort(taken.begin(), taken.end());
      std::vector<std::int64_t> all(values.size());
      std::iota(all.begin(), all.end(), std::int64_t{0});
      REQUIRE(taken == all);
    }
  }

  TEST_CASE("a mistake of the program is an exception that says it") {
    ElasticSampler sampler = sampler_of({.sample_count = 2, .step_size = 2});
    CHECK_THROWS_WITH_AS(sampler.next(2, 2), "next(): rank 2 is none of 2 ranks, which begin at 0",
                         std::out_of_range);
    CHECK_THROWS_AS(sampler.next(-1, 2), std::out_of_range);
    sampler.commit();
    for (const char* call : {"next()", "commit()"}) {
      const std::string said = std::string(call) +
                               ": epoch 0 has no step left: ask is_epoch_done(), and call "
                               "next_epoch()";
      if (call == std::string("next()")) {
        CHECK_THROWS_WITH_AS(sampler.next(0, 2), said.c_str(), std::out_of_range);
      } else {
        CHECK_THROWS_WITH_AS(sampler.commit(), said.c_str(), std::out_of_range);
      }
    }
    sampler.next_epoch();
    CHECK_FALSE(sampler.next(0, 2).indices.empty());
  }

  TEST_CASE("copies share the order of the epoch, which a large data set could not hold twice") {
    constexpr std::int64_t kCount = 4'000'000;
    ElasticSampler sampler = sampler_of({.sample_count = kCount, .step_size = 4});
    auto in_use = [] {
      const struct mallinfo2 info = ::mallinfo2();
      return info.uordblks + info.hblkhd;
    };
    const std::size_t before = in_use();
    ElasticSampler copy = sampler;
    CHECK(in_use() < before + 1'000'000);
    sampler.commit();
    sampler.next_epoch();
    CHECK(copy.state().epoch == 0);
    CHECK(copy.next(0, 1).indices != sampler.next(0, 1).indices);
    CHECK(copy.next(0, 1).indices ==
          sampler_of({.sample_count = kCount, .step_size = 4}).next(0, 1).indices);
  }
}
