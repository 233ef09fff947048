// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/former.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rendezvous/decide/node_id.h"

namespace ddprun::rendezvous::coordinator {
namespace {

// Of a Former with nodes of several starts: none of them has it.
constexpr std::uint64_t kManyRounds = std::numeric_limits<std::uint64_t>::max();

// No round before the present one is asked for.
void forget_earlier(Former& former, std::uint64_t round) {
  const RoundId first{.number = round};
  former.accounted.erase(former.accounted.begin(), former.accounted.lower_bound(first));
  former.broken.erase(former.broken.begin(), former.broken.lower_bound(first));
}

bool has_room_for(const Former& former, const RoundId& round) {
  if (names_in(former) >= kMostFormerNames) return false;
  return round == former.id() || former.accounted.contains(round) ||
         former.accounted.size() < kMostFormerRounds;
}

}  // namespace

std::size_t names_in(const Former& former) {
  std::size_t count = 0;
  for (const auto& [round, names] : former.accounted) count += names.size();
  return count;
}

int missing(const Former& former) {
  if (!former.round) return 0;
  auto accounted = former.accounted.find(former.id());
  int known = accounted == former.accounted.end() ? 0 : static_cast<int>(accounted->second.size());
  return former.nodes - known;
}

std::vector<std::string> missing_names(const Former& former) {
  std::vector<std::string> names;
  if (static_cast<int>(former.names.size()) != former.nodes) return names;
  auto accounted = former.accounted.find(former.id());
  for (const std::string& name : former.names) {
    bool is_back = accounted != former.accounted.end() && accounted->second.contains(name);
    if (!is_back) names.push_back(name);
  }
  return names;
}

Former former_of(const RunFile& file, MonoTime now) {
  Former former{.run_uuid = file.run_uuid,
                .round = file.round,
                .nodes = static_cast<int>(file.nodes.size()),
                .names = file.nodes,
                .left = file.left,
                .until = now + file.lease,
                .by = file.by,
                .lease = file.lease,
                .filed_until = now + file.lease};
  if (!file.left.empty()) former.accounted[former.id()] = file.left;
  return former;
}

void FormerRounds::begin(Former former) {
  is_broken = former.is_broken;
  broken_why = former.broken_why;
  broken_loss = former.broken_loss;
  awaited = std::move(former);
}

std::optional<Former> FormerRounds::take(const command::Stop* stop) {
  if (awaited) {
    awaited->is_broken = stop != nullptr || is_broken;
    awaited->broken_why = stop != nullptr ? why_of(*stop) : broken_why;
    awaited->broken_loss = stop != nullptr ? stop->loss : broken_loss;
  }
  return std::exchange(awaited, std::nullopt);
}

FormerRounds FormerRounds::take_for_next_run() {
  FormerRounds next;
  if (auto former = take()) next.begin(std::move(*former));
  next.past_rounds = std::move(past_rounds);
  return next;
}

bool FormerRounds::node_is_back(const std::string& id, const request::Join& join, MonoTime until,
                                bool goes_on, bool was_in_round) {
  if (auto settled = settled_starts.find(join.run_uuid); settled != settled_starts.end()) {
    // At another endpoint later ones may have begun.
    bool may_be_later = was_in_round && !join.settings.endpoints.empty();
    if (!may_be_later || join.next_round <= settled->second + 1) return false;
  }
  if (!awaited) awaited = Former{.run_uuid = join.run_uuid, .round = {}, .until = until};
  Former& former = *awaited;
  if (former.run_uuid.empty() && !former.round) former.run_uuid = join.run_uuid;
  if (former.run_uuid != join.run_uuid && !join.run_uuid.empty()) {
    former.run_uuid.clear();
    former.round = kManyRounds;
    former.names.clear();
    former.until = until;
  }
  if (!was_in_round || join.next_round == 0) return account_for_named(id);
  RoundId round{.number = join.next_round - 1, .by = join.round_by};
  if (!former.round || round.number > *former.round) {
    former.round = round.number;
    former.nodes = join.previous_nodes;
    former.names.clear();
    former.until = until;
    former.by = join.round_by;
    former.filed_until.reset();  // it began when those of the file were dead
    forget_earlier(former, round.number);
    is_broken = former.broken.contains(former.id());
    if (!is_broken) {
      broken_why.clear();
      broken_loss = LossKind::Other;
    }
  } else if (round.number == *former.round && round.by != former.by) {
    // Of two coordinators that did not know of each other: no count says that both are over.
    former.round = kManyRounds;
    former.names.clear();
    former.until = std::max(former.until, until);
  }
  former.lease = std::max(former.lease, join.policy.lease());
  if (round.number < *former.round) return account_for_named(id);
  return account_for(id, round, goes_on);
}

bool FormerRounds::node_has_left(const std::string& id, const std::optional<RoundId>& round) {
  if (awaited && round && account_for(id, *round)) return true;
  return account_for_named(id);
}

bool FormerRounds::account_for_named(const std::string& id) {
  return awaited && awaited->names.contains(name_of(id)) && account_for(id, awaited->id());
}

bool FormerRounds::account_for(const std::string& id, const RoundId& round, bool goes_on) {
  if (!has_room_for(*awaited, round)) return false;
  awaited->accounted[round].insert(name_of(id));
  bool is_last = awaited->round && awaited->id() == round;
  if (!goes_on) awaited->broken.insert(round);
  if (is_last && !goes_on) is_broken = true;
  if (!is_last || missing(*awaited) > 0) return false;
  was_host_in_it = round.by.empty() || awaited->accounted[round].contains(hosting_node(round.by));
  settle();
  return true;
}

int FormerRounds::settle() {
  Former former = *std::exchange(awaited, std::nullopt);
  bool has_round = former.round && *former.round != kManyRounds;
  std::uint64_t& settled = settled_starts[former.run_uuid];
  settled = std::max(settled, has_round ? *former.round : 0);
  return missing(former);
}

bool FormerRounds::is_past(const std::string& run_uuid, std::uint64_t round) const {
  auto past = past_rounds.find(run_uuid);
  return past != past_rounds.end() && round < past->second;
}

}  // namespace ddprun::rendezvous::coordinator
