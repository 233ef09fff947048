// SPDX-License-Identifier: BSD-3-Clause
//
// Which samples of the data a rank takes, exactly once over restarts on any number of ranks.  The
// order of an epoch follows from seed and epoch alone, and the position in it is counted in
// samples, so that a run that goes on with 3 ranks where 4 had stopped neither repeats nor skips
// one.  LibTorch's own distributed samplers save a position that is wrong for any other rank.
//
// Pure arithmetic: no LibTorch, no group.  Each rank computes its share; nothing is communicated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "store/base/error.h"

namespace ddprun::ddp {

// Where the data stands, and of which data: all that a checkpoint needs to keep.
struct SamplerState {
  std::int64_t sample_count = 0;  // of the data set; 0 in checkpoints that do not say
  bool shuffle = true;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;  // samples of the epoch taken by committed steps, over all ranks

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

// What restore() does with the position in another data set, or with another seed or order.
enum class OnChange : std::uint8_t {
  Refuse,
  RestartEpoch,  // begin the saved epoch anew, with the options at hand
};

struct SamplerOptions {
  std::int64_t sample_count = 0;  // of the data set; 1 or more
  std::int64_t step_size = 1;     // samples per optimizer step, over all ranks; 1 or more
  std::uint64_t seed = 0;
  bool shuffle = true;  // false: every epoch in the data's own order
  bool drop_partial =
      false;  // true: samples at an epoch's end that fill no step are left out of it
  OnChange on_change = OnChange::Refuse;
};

// One rank's part of one step.  A step's samples are dealt out so that the ranks' counts differ by
// one at most; only where a step has fewer samples than there are ranks, a rank left over gets one
// that another rank has, with weight 0, because every rank must take part in the reduction.
struct Share {
  std::vector<std::int64_t> indices{};  // into the data set; never empty

  // Multiply the mean loss over these samples by it: what DDP makes of that, the mean over ranks,
  // is then the mean over the step's samples, whatever the ranks' counts.  1 when they are equal.
  // DistributedDataParallel::weighted() does so, and makes 0 times NaN zero.
  double weight = 1;
};

// The order of the samples in an epoch: a permutation of 0 .. count-1 that depends on nothing but
// its arguments, on any machine and with any compiler.
std::vector<std::int64_t> permutation(std::int64_t count, std::uint64_t seed, std::int64_t epoch);

// A seed for the random numbers of `rank` from `step` on: streams of different ranks and steps have
// nothing in common.  Depends on nothing but its arguments.
std::uint64_t stream_seed(std::uint64_t seed, int rank, std::int64_t step);

// Walks through epochs step by step.  All ranks hold one in the same state.
//
// A step's samples count as consumed when commit() says so, which belongs after optimizer.step():
// what was taken and not committed is taken again after a restart.
//
// Memory: with shuffle 8 bytes for each sample of the data set, which copies share.
//
// Threads: used from one thread.
class ElasticSampler {
 public:
  // Fails with Errc::InvalidInput, naming the field, for a count below 1.
  static Result<ElasticSampler> make(const SamplerOptions& options);

  // Whether the epoch has no step left.
  bool is_epoch_done() const;

  // This rank's part of the next step; the same until commit().  Throws std::out_of_range once
  // is_epoch_done(), and for a rank that is none of the world.
  Share next(int rank, int world_size) const;

  // Counts the step of next() as done.  Throws std::out_of_range once is_epoch_done().
  void commit();

  // Goes to the start of the next epoch.
  void next_epoch();

  // Steps left in this epoch.
  std::int64_t steps_left() const;

  const SamplerState& state() const { return state_; }

  // Continues where `state` was taken, on any number of ranks.  Fails with Errc::InvalidInput for a
  // position that this data set does not have, and, unless on_change says otherwise, when
  // sample_count, seed or shuffle differ: the order of the samples would be another one, and some
  // would be taken twice or never.
  Result<void> restore(const SamplerState& state);

 private:
  explicit ElasticSampler(const SamplerOptions& options);
  void start_epoch(std::int64_t epoch);
  std::string difference(const SamplerState& saved) const;
  std::int64_t samples_in_step() const;
  void refuse_if_epoch_is_done(const char* call) const;

  SamplerOptions options_;
  SamplerState state_;
  std::shared_ptr<const std::vector<std::int64_t>> order_;  // of the epoch; null without shuffle
};

}  // namespace ddprun::ddp
