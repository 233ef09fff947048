// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/findings.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ddprun::rendezvous {
namespace {

// A worker may be a shell whose child connects; then it is announced and never seen, and the store
// says nothing about who has come.
std::map<int, int> never_connected(const Failure& failure, const Inquiry& inquiry) {
  std::map<int, int> pids;
  for (const Unconnected& one : inquiry.unconnected) pids[one.rank] = one.pid;
  bool is_of_use = !pids.contains(failure.rank);
  for (const auto& [node, finding] : inquiry.workers) {
    if (finding.place == Whereabouts::Waits && pids.contains(finding.rank)) is_of_use = false;
  }
  return is_of_use ? pids : std::map<int, int>();
}

// The others, and the one that failed, are known to have waited: Gloo's peers in the same wait hear
// within milliseconds when one of them ends.
void add_by_elimination(std::set<int>& ranks, const Failure& failure, const Inquiry& inquiry) {
  std::set<int> unknown;
  for (const auto& [node, finding] : inquiry.workers) {
    bool is_known = finding.place != Whereabouts::Unknown || finding.rank == failure.rank;
    if (!is_known) unknown.insert(finding.rank);
  }
  auto waited = static_cast<std::size_t>(failure.also_waited) + 1;
  bool are_few = unknown.size() <= waited;
  if (are_few) ranks.merge(unknown);
}

// Who had ended has left the others behind, and who waits in another collective never comes.
void name_ended(Failure& failure, const TimedOutWait& wait, const Inquiry& inquiry) {
  std::map<int, const Inquiry::OfNode*> ended;
  for (const Inquiry::OfNode& worker : inquiry.workers) {
    if (worker.finding.place == Whereabouts::Elsewhere) ended[worker.finding.rank] = &worker;
  }
  ended.erase(failure.rank);
  if (ended.empty()) return;
  failure.waited_in = wait.in.empty() ? "a collective" : wait.in;
  failure.suspect_count = static_cast<int>(ended.size());
  for (const auto& [rank, worker] : ended) {
    if (failure.suspects.size() == kMaxSuspects) break;
    failure.suspects.push_back({.rank = rank,
                                .pid = worker->finding.pid,
                                .node = worker->node,
                                .has_come = true,
                                .doing = worker->finding.doing});
  }
}

}  // namespace

void Inquiry::add(const std::string& node, const Findings& findings) {
  for (const Finding& finding : findings.workers)
    workers.push_back({.node = node, .finding = finding});
  unconnected.insert(unconnected.end(), findings.unconnected.begin(), findings.unconnected.end());
}

void name_suspects(Failure& failure, const TimedOutWait& wait, const Inquiry& inquiry) {
  if (wait.has_lost_peer) return name_ended(failure, wait, inquiry);
  const std::map<int, int> absent = never_connected(failure, inquiry);
  std::map<int, const Inquiry::OfNode*> known;
  std::set<int> ranks;
  for (const auto& [rank, pid] : absent) ranks.insert(rank);
  ranks.insert(wait.missing.begin(), wait.missing.end());
  for (const Inquiry::OfNode& worker : inquiry.workers) {
    known[worker.finding.rank] = &worker;
    if (worker.finding.place == Whereabouts::Elsewhere) ranks.insert(worker.finding.rank);
  }
  ranks.erase(failure.rank);
  failure.waited_in = wait.in.empty() ? "a collective" : wait.in;
  for (const auto& [rank, worker] : known) {
    if (worker->finding.place != Whereabouts::Waits) continue;
    ranks.erase(rank);
    if (rank != failure.rank) ++failure.also_waited;
  }
  if (ranks.empty() && wait.is_idle) add_by_elimination(ranks, failure, inquiry);
  failure.suspect_count = static_cast<int>(ranks.size());
  for (int rank : ranks) {
    if (failure.suspects.size() == kMaxSuspects) break;
    Suspect suspect{.rank = rank, .has_come = !absent.contains(rank)};
    if (!suspect.has_come) suspect.pid = absent.at(rank);
    if (auto found = known.find(rank); found != known.end()) {
      suspect.pid = found->second->finding.pid;
      suspect.node = found->second->node;
      suspect.doing = found->second->finding.doing;
    }
    failure.suspects.push_back(std::move(suspect));
  }
}

std::vector<KeptWaiting> kept_waiting_again(const std::vector<Failure>& failures) {
  std::map<std::pair<int, std::string>, int> counts;
  for (const Failure& failure : failures) {
    for (const Suspect& suspect : failure.suspects) ++counts[{suspect.rank, suspect.node}];
  }
  std::vector<KeptWaiting> again;
  for (const auto& [who, count] : counts) {
    if (count > 1) again.push_back({.rank = who.first, .node = who.second, .attempts = count});
  }
  return again;
}

std::string describe(const KeptWaiting& kept) {
  return "kept others waiting in " + std::to_string(kept.attempts) + " attempts";
}

}  // namespace ddprun::rendezvous
