// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/decide/plan.h"

#include <algorithm>

namespace ddprun::ddp::shm {
namespace {

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

Plan::Plan(Algorithm algorithm, std::size_t bytes, std::uint64_t first, const Layout& layout,
           int root)
    : algorithm_(algorithm), bytes_(bytes), first_(first), layout_(layout), root_(root) {
  chunk_bytes_ = layout.slot_bytes;
  chunks_ = std::max<std::uint64_t>(1, (bytes + chunk_bytes_ - 1) / chunk_bytes_);
}

Span Plan::chunk(std::uint64_t index) const {
  std::size_t begin = static_cast<std::size_t>(index) * chunk_bytes_;
  return {begin, std::min(chunk_bytes_, bytes_ - std::min(begin, bytes_))};
}

// Pieces begin on a cache line, so that no two ranks write into one; the last may be short or
// empty.
Span Plan::piece(std::uint64_t index, int rank) const {
  Span whole = chunk(index);
  auto ranks = static_cast<std::size_t>(layout_.ranks);
  std::size_t each = round_up((whole.bytes + ranks - 1) / ranks, kLineBytes);
  std::size_t begin = std::min(whole.bytes, each * static_cast<std::size_t>(rank));
  return {whole.begin + begin, std::min(each, whole.bytes - begin)};
}

Cycle Plan::cycle(std::uint64_t number) const {
  Cycle cycle;
  auto add = [&](Stage stage, std::uint64_t lag) {
    if (number >= lag && number - lag < chunks_) cycle.steps[cycle.count++] = {stage, number - lag};
  };
  add(Stage::Post, 0);
  if (algorithm_ == Algorithm::Reduce) add(Stage::Reduce, 1);
  add(Stage::Collect, collect_lag());
  return cycle;
}

Need Plan::before(const Step& step, int rank) const {
  const std::uint64_t count = number(step.chunk) + 1;
  const auto slots = static_cast<std::uint64_t>(layout_.slots);
  switch (step.stage) {
    case Stage::Post:  // the slot is free when all have read what it held
      if (count <= slots) return {};
      return {Need::Of::Peers, Counter::Done, count - slots};
    case Stage::Reduce:
      return {Need::Of::Peers, Counter::Posted, count};
    case Stage::Collect:
      if (algorithm_ == Algorithm::Reduce) return {Need::Of::Peers, Counter::Reduced, count};
      if (algorithm_ == Algorithm::Gather) return {Need::Of::Peers, Counter::Posted, count};
      return rank == root_ ? Need{} : Need{Need::Of::Root, Counter::Posted, count};
  }
  return {};
}

Counter Plan::after(Stage stage) {
  switch (stage) {
    case Stage::Post:
      return Counter::Posted;
    case Stage::Reduce:
      return Counter::Reduced;
    case Stage::Collect:
      return Counter::Done;
  }
  return Counter::Done;
}

Need Plan::wanted(int rank) const {
  return before({Stage::Collect, chunks_ - 1}, rank);
}

}  // namespace ddprun::ddp::shm
