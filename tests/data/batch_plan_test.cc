// SPDX-License-Identifier: BSD-3-Clause
#include "worker/data/batch_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace {

using namespace ddprun::ddp;

BatchPlan plan_of(const BatchOptions& options, int world_size) {
  return plan_batches(options, world_size).value();
}

}  // namespace

TEST_SUITE("ddp/batch_plan") {
  TEST_CASE("keeping the global batch, a smaller world makes more passes") {
    BatchOptions options{.global_batch = 64, .max_micro_batch = 16};
    CHECK(plan_of(options, 4) == BatchPlan{.step_size = 64, .passes = 1});
    CHECK(plan_of(options, 3) == BatchPlan{.step_size = 64, .passes = 2});
    CHECK(plan_of(options, 1) == BatchPlan{.step_size = 64, .passes = 4});
    CHECK(plan_of({.global_batch = 64}, 1) == BatchPlan{.step_size = 64, .passes = 1});
  }

  TEST_CASE("keeping each rank's batch, the learning rate follows the global one") {
    BatchOptions options{
        .policy = BatchPolicy::KeepLocal, .global_batch = 64, .reference_world_size = 4};
    CHECK(plan_of(options, 4) == BatchPlan{.step_size = 64});
    CHECK(plan_of(options, 2) == BatchPlan{.step_size = 32, .lr_scale = 0.5});
    CHECK(plan_of(options, 8) == BatchPlan{.step_size = 128, .lr_scale = 2});
    options.global_batch = 1;
    CHECK(plan_of(options, 2) == BatchPlan{.step_size = 2, .lr_scale = 2});
  }

  TEST_CASE("a number out of its range is named") {
    auto problem = [](const BatchOptions& options, int world_size) {
      return plan_batches(options, world_size).error().context;
    };
    CHECK(problem({.global_batch = 0}, 1) == "global_batch is 0; 1 or more is accepted");
    CHECK(problem({.reference_world_size = -1}, 1) ==
          "reference_world_size is -1; 1 or more is accepted");
    CHECK(problem({.max_micro_batch = -1}, 1) == "max_micro_batch is -1; 0 or more is accepted");
    CHECK(problem({}, 0) == "world_size is 0; 1 or more is accepted");
  }

  TEST_CASE("over any worlds and passes the mean is that of the step's samples, each taken once") {
    std::mt19937 random(1);
    auto below = [&](int bound) {
      return static_cast<int>(random() % static_cast<unsigned>(bound));
    };
    for (int round = 0; round < 300; ++round) {
      const int world_size = 1 + below(6);
      const std::int64_t count = 1 + below(40);
      BatchOptions options{.global_batch = count, .max_micro_batch = 1 + below(9)};
      BatchPlan plan = plan_of(options, world_size);
      ElasticSampler sampler =
          ElasticSampler::make({.sample_count = count, .step_size = plan.step_size}).value();
      double mean = 0;  // of value(index) = index, as accumulate() and DDP make it
      std::vector<std::int64_t> taken;
      for (int rank = 0; rank < world_size; ++rank) {
        Share share = sampler.next(rank, world_size);
        std::vector<Share> parts = split(share, plan.passes);
        REQUIRE(parts.size() == static_cast<std::size_t>(plan.passes));
        for (const Share& part : parts) {
          REQUIRE(!part.indices.empty());
          REQUIRE(static_cast<std::int64_t>(part.indices.size()) <= options.max_micro_batch);
          double sum = 0;
          for (std::int64_t index : part.indices) sum += static_cast<double>(index);
          mean += part.weight * sum / static_cast<double>(part.indices.size()) / plan.passes /
                  world_size;
          if (part.weight > 0) taken.insert(taken.end(), part.indices.begin(), part.indices.end());
        }
      }
      CHECK(mean == doctest::Approx(static_cast<double>(count - 1) / 2));
      std::sort(taken.begin(), taken.end());
      REQUIRE(static_cast<std::int64_t>(taken.size()) == count);
      for (std::int64_t i = 0; i < count; ++i) REQUIRE(taken[static_cast<std::size_t>(i)] == i);
    }
  }
}
