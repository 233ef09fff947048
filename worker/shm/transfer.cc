// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/transfer.h"

#include <array>
#include <cstring>
#include <utility>

namespace ddprun::ddp::shm {
namespace {

// Up to here an all-reduce takes one synchronisation instead of two.
constexpr std::size_t kGatheredBytes = std::size_t{64} << 10;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

Algorithm algorithm_for(const Fingerprint& fingerprint) {
  switch (fingerprint.collective) {
    case Collective::AllReduce:
    case Collective::Reduce:
      return fingerprint.bytes <= kGatheredBytes ? Algorithm::Gather : Algorithm::Reduce;
    case Collective::Broadcast:
      return Algorithm::Broadcast;
    case Collective::AllGather:
    case Collective::Gather:
    case Collective::Barrier:
      return Algorithm::Gather;
  }
  return Algorithm::Gather;
}

Transfer::Transfer(const Request& request, std::uint64_t first, const Layout& layout, Deadline now)
    : request_(request),
      plan_(algorithm_for(request.fingerprint), request.fingerprint.bytes, first, layout,
            request.fingerprint.root),
      deadline_(now + request.timeout) {}

bool Transfer::try_post(Channel& channel) {
  if (plan_.chunks() != 1 || plan_.algorithm() == Algorithm::Reduce) return false;
  if (channel.seen(channel.rank(), Counter::Posted) != plan_.number(0)) return false;
  if (!channel.is_met(plan_.before({Stage::Post, 0}, channel.rank()), plan_.root())) return false;
  post(channel, 0);
  channel.publish(Counter::Posted, plan_.end());
  is_posted_ = true;
  return true;
}

std::optional<std::string> Transfer::run(Channel& channel, WaitMode mode) {
  for (std::uint64_t number = 0; number < plan_.cycles(); ++number) {
    const Cycle cycle = plan_.cycle(number);
    for (int i = 0; i < cycle.count; ++i) {
      if (cycle.steps[i].stage == Stage::Post && is_posted_) continue;
      if (auto problem = execute(cycle.steps[i], channel, mode)) return problem;
    }
  }
  return std::nullopt;
}

std::optional<std::string> Transfer::execute(const Step& step, Channel& channel, WaitMode mode) {
  const int rank = channel.rank();
  Channel::Wait wait{.need = plan_.before(step, rank),
                     .wanted = plan_.wanted(rank),
                     .root = plan_.root(),
                     .first = plan_.number(0),
                     .fingerprint = &request_.fingerprint,
                     .deadline = deadline_,
                     .timeout = request_.timeout};
  if (auto problem = channel.await(wait, mode)) return problem;
  switch (step.stage) {
    case Stage::Post:
      post(channel, step.chunk);
      break;
    case Stage::Reduce:
      if (auto problem = disagreement(channel)) return problem;
      reduce(channel, step.chunk);
      break;
    case Stage::Collect:
      if (auto problem = disagreement(channel)) return problem;
      collect(channel, step.chunk);
      break;
  }
  channel.publish(Plan::after(step.stage), plan_.number(step.chunk) + 1);
  return std::nullopt;
}

// Compares the fingerprints of the peers' first chunk with this rank's.  The root of a broadcast
// does not wait for its peers, so it compares with those that have come.  Of two roots at least one
// sees the other: each publishes its counter before it looks (the fence in publish()).
std::optional<std::string> Transfer::disagreement(const Channel& channel) {
  if (std::exchange(is_compared_, true)) return std::nullopt;
  const int rank = channel.rank();
  for (int peer = 0; peer < channel.ranks(); ++peer) {
    const bool is_from_root = plan_.algorithm() == Algorithm::Broadcast;
    const bool is_here = channel.seen(peer, Counter::Posted) > plan_.number(0);
    const bool is_compared =
        !is_from_root || (rank == plan_.root() ? is_here : peer == plan_.root());
    if (peer == rank || !is_compared) continue;
    const Fingerprint& theirs = channel.segment().fingerprint(peer, plan_.number(0));
    if (theirs == request_.fingerprint) continue;
    return "the ranks do not call the same: rank " + std::to_string(rank) + " called " +
           describe(request_.fingerprint) + ", rank " + std::to_string(peer) + " " +
           describe(theirs);
  }
  return std::nullopt;
}

void Transfer::post(const Channel& channel, std::uint64_t chunk) {
  const int rank = channel.rank();
  const Segment& segment = channel.segment();
  segment.fingerprint(rank, plan_.number(chunk)) = request_.fingerprint;
  if (plan_.algorithm() == Algorithm::Broadcast && rank != plan_.root()) return;
  const Span whole = plan_.chunk(chunk);
  std::byte* slot = segment.data(rank, plan_.number(chunk));
  if (plan_.algorithm() != Algorithm::Reduce) {
    copy_bytes(slot, request_.input + whole.begin, whole.bytes);
    return;
  }
  // All but the piece that this rank adds up itself, whose place its result takes.
  const Span own = plan_.piece(chunk, rank);
  const std::size_t before = own.begin - whole.begin;
  const std::size_t after = before + own.bytes;
  copy_bytes(slot, request_.input + whole.begin, before);
  copy_bytes(slot + after, request_.input + whole.begin + after, whole.bytes - after);
}

// The sum over the ranks, in their order, of the part `span` of the tensor.
void Transfer::add_up(const Channel& channel, std::uint64_t chunk, const Span& span) {
  if (span.bytes == 0) return;
  const std::size_t offset = span.begin - plan_.chunk(chunk).begin;
  const auto ranks = static_cast<std::size_t>(channel.ranks());
  std::array<const std::byte*, kMaxRanks> sources;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const int number = static_cast<int>(rank);
    sources[rank] = number == channel.rank()
                        ? request_.input + span.begin
                        : channel.segment().data(number, plan_.number(chunk)) + offset;
  }
  shm::reduce(request_.fingerprint.element, request_.fingerprint.reduction,
              std::span(sources).first(ranks), span.bytes, request_.output + span.begin);
}

void Transfer::reduce(const Channel& channel, std::uint64_t chunk) {
  const Span own = plan_.piece(chunk, channel.rank());
  add_up(channel, chunk, own);
  std::byte* slot = channel.segment().data(channel.rank(), plan_.number(chunk));
  copy_bytes(slot + (own.begin - plan_.chunk(chunk).begin), request_.output + own.begin, own.bytes);
}

bool Transfer::wants_result(int rank) const {
  const Collective collective = request_.fingerprint.collective;
  const bool has_root = collective == Collective::Reduce || collective == Collective::Gather;
  return !has_root || rank == request_.fingerprint.root;
}

void Transfer::collect(const Channel& channel, std::uint64_t chunk) {
  const Segment& segment = channel.segment();
  const int rank = channel.rank();
  if (!wants_result(rank)) return;
  const Span whole = plan_.chunk(chunk);
  if (plan_.algorithm() == Algorithm::Gather) {
    collect_all(channel, chunk);
  } else if (plan_.algorithm() == Algorithm::Broadcast) {
    const std::byte* from = rank == plan_.root() ? request_.input + whole.begin
                                                 : segment.data(plan_.root(), plan_.number(chunk));
    copy_bytes(request_.output + whole.begin, from, whole.bytes);
  } else {
    for (int peer = 0; peer < channel.ranks(); ++peer) {
      if (peer == rank) continue;
      const Span piece = plan_.piece(chunk, peer);
      copy_bytes(request_.output + piece.begin,
                 segment.data(peer, plan_.number(chunk)) + (piece.begin - whole.begin),
                 piece.bytes);
    }
  }
}

void Transfer::collect_all(const Channel& channel, std::uint64_t chunk) {
  const Span whole = plan_.chunk(chunk);
  const Collective collective = request_.fingerprint.collective;
  if (collective == Collective::AllReduce || collective == Collective::Reduce)
    return add_up(channel, chunk, whole);
  if (collective == Collective::Barrier) return;
  for (int peer = 0; peer < channel.ranks(); ++peer) {
    const std::byte* from = peer == channel.rank()
                                ? request_.input + whole.begin
                                : channel.segment().data(peer, plan_.number(chunk));
    copy_bytes(request_.parts[static_cast<std::size_t>(peer)] + whole.begin, from, whole.bytes);
  }
}

}  // namespace ddprun::ddp::shm
