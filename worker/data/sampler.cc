// SPDX-License-Identifier: BSD-3-Clause
#include "worker/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace ddprun::ddp {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, passes BigCrush, and is three lines that
// cannot differ between machines.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  // A number in [0, bound), each equally likely: draws that would favour small ones are repeated.
  std::uint64_t below(std::uint64_t bound) {
    std::uint64_t excess = (0 - bound) % bound;  // 2^64 mod bound
    for (;;) {
      std::uint64_t draw = next();
      if (draw >= excess) return draw % bound;
    }
  }

 private:
  std::uint64_t state_;
};

Error invalid(std::string sentence) {
  return Error{Errc::InvalidInput, std::move(sentence)};
}

}  // namespace

std::vector<std::int64_t> permutation(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // Seed and epoch go through the generator one after the other, so that (1, 2) and (2, 1) differ.
  std::uint64_t mixed_seed = SplitMix64(seed).next();
  SplitMix64 random(SplitMix64(mixed_seed + static_cast<std::uint64_t>(epoch)).next());
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.below(i)]);
  }
  return order;
}

std::uint64_t stream_seed(std::uint64_t seed, int rank, std::int64_t step) {
  std::uint64_t mixed = SplitMix64(seed).next();
  mixed = SplitMix64(mixed + static_cast<std::uint64_t>(rank)).next();
  return SplitMix64(mixed + static_cast<std::uint64_t>(step)).next();
}

Result<ElasticSampler> ElasticSampler::make(const SamplerOptions& options) {
  if (options.sample_count < 1) {
    return invalid("sample_count is " + std::to_string(options.sample_count) +
                   ": a sampler needs 1 sample or more");
  }
  if (options.step_size < 1) {
    return invalid("step_size is " + std::to_string(options.step_size) +
                   ": a step needs 1 sample or more");
  }
  return ElasticSampler(options);
}

ElasticSampler::ElasticSampler(const SamplerOptions& options) : options_(options) {
  state_.sample_count = options.sample_count;
  state_.shuffle = options.shuffle;
  state_.seed = options.seed;
  start_epoch(0);
}

void ElasticSampler::start_epoch(std::int64_t epoch) {
  state_.epoch = epoch;
  state_.consumed = 0;
  if (!options_.shuffle) return;
  order_.reset();  // before the next one is made
  order_ = std::make_shared<const std::vector<std::int64_t>>(
      permutation(options_.sample_count, state_.seed, epoch));
}

std::int64_t ElasticSampler::samples_in_step() const {
  return std::min(options_.step_size, options_.sample_count - state_.consumed);
}

std::int64_t ElasticSampler::steps_left() const {
  std::int64_t left = options_.sample_count - state_.consumed;
  bool has_partial = left % options_.step_size != 0 && !options_.drop_partial;
  return left / options_.step_size + (has_partial ? 1 : 0);
}

bool ElasticSampler::is_epoch_done() const {
  return steps_left() == 0;
}

void ElasticSampler::refuse_if_epoch_is_done(const char* call) const {
  if (!is_epoch_done()) return;
  throw std::out_of_range(std::string(call) + ": epoch " + std::to_string(state_.epoch) +
                          " has no step left: ask is_epoch_done(), and call next_epoch()");
}

Share ElasticSampler::next(int rank, int world_size) const {
  refuse_if_epoch_is_done("next()");
  if (rank < 0 || rank >= world_size) {
    throw std::out_of_range("next(): rank " + std::to_string(rank) + " is none of " +
                            std::to_string(world_size) + " ranks, which begin at 0");
  }
  std::int64_t size = samples_in_step();
  std::int64_t begin = size / world_size * rank + std::min<std::int64_t>(size % world_size, rank);
  std::int64_t count = size / world_size + (rank < size % world_size ? 1 : 0);

  Share share;
  share.weight = static_cast<double>(count) * world_size / static_cast<double>(size);
  if (count == 0) {
    begin = 0;
    count = 1;
  }
  share.indices.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = state_.consumed + begin; i < state_.consumed + begin + count; ++i) {
    share.indices.push_back(options_.shuffle ? (*order_)[static_cast<std::size_t>(i)] : i);
  }
  return share;
}

void ElasticSampler::commit() {
  refuse_if_epoch_is_done("commit()");
  state_.consumed += samples_in_step();
}

void ElasticSampler::next_epoch() {
  start_epoch(state_.epoch + 1);
}

// How `saved` differs from the options; "" if it does not.
std::string ElasticSampler::difference(const SamplerState& saved) const {
  if (saved.sample_count == 0) return "";
  if (saved.sample_count != options_.sample_count) {
    return std::to_string(saved.sample_count) + " samples and this one " +
           std::to_string(options_.sample_count);
  }
  if (saved.shuffle != options_.shuffle) {
    const char* const words[] = {"no shuffling", "shuffling"};
    return std::string(words[saved.shuffle ? 1 : 0]) + " and this one " +
           words[options_.shuffle ? 1 : 0];
  }
  if (saved.shuffle && saved.seed != options_.seed) {
    return "seed " + std::to_string(saved.seed) + " and this one " + std::to_string(options_.seed);
  }
  return "";
}

Result<void> ElasticSampler::restore(const SamplerState& state) {
  if (const std::string differs = difference(state); !differs.empty()) {
    if (options_.on_change == OnChange::Refuse) {
      return invalid(
          "the sampler that was saved had " + differs +
          ": go on with the same, or set on_change to RestartEpoch, which begins epoch " +
          std::to_string(state.epoch) + " anew");
    }
    if (state.epoch < 0) return invalid("the epoch " + std::to_string(state.epoch) + " is none");
    start_epoch(state.epoch);
    return {};
  }
  if (state.epoch < 0 || state.consumed < 0 || state.consumed > options_.sample_count) {
    return invalid("the data position (epoch " + std::to_string(state.epoch) + ", sample " +
                   std::to_string(state.consumed) + ") is not one of a data set of " +
                   std::to_string(options_.sample_count) + " samples");
  }
  if (state.sample_count == 0) state_.seed = state.seed;  // it does not say what it was made with
  start_epoch(state.epoch);
  state_.consumed = state.consumed;
  return {};
}

}  // namespace ddprun::ddp
