// SPDX-License-Identifier: BSD-3-Clause
#include "agent/hang.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "agent/job_report.h"

namespace ddprun::agent {
namespace {

using Groups = std::map<std::string, std::vector<int>>;  // by what they do

// The ranks that differ from the rest, which must be more than half of all; else everybody.
std::vector<int> odd_ones(const std::vector<int>& silent, const std::map<int, std::string>& doing) {
  Groups groups;
  for (int local_rank : silent) groups[doing.at(local_rank)].push_back(local_rank);
  auto rest = std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (rest->second.size() * 2 <= silent.size() || rest->second.size() == silent.size())
    return silent;
  std::vector<int> odd;
  for (int local_rank : silent) {
    if (doing.at(local_rank) != rest->first) odd.push_back(local_rank);
  }
  return odd;
}

bool used_cpu(const LifeSample& before, const LifeSample& after, Duration between) {
  Duration used = after.cpu_time - before.cpu_time;
  return used >= kIdleTime &&
         static_cast<double>(used.count()) >= kIdleShare * static_cast<double>(between.count());
}

}  // namespace

void HangDetector::note(const LifeSample& sample, MonoTime now) {
  auto [found, is_new] = lives_.try_emplace(sample.local_rank, Life{sample, now, now});
  if (is_new) return;
  Life& life = found->second;
  bool is_beating = sample.heartbeat_ns != 0;
  bool is_alive = sample.heartbeat_ns != life.last.heartbeat_ns;
  if (!is_beating) {
    is_alive = sample.output_bytes != life.last.output_bytes ||
               used_cpu(life.last, sample, now - life.sampled_at);
  }
  if (is_alive) life.alive_at = now;
  life.last = sample;
  life.sampled_at = now;
}

std::optional<HangVerdict> HangDetector::look(const std::vector<LifeSample>& samples,
                                              MonoTime now) {
  for (const LifeSample& sample : samples) note(sample, now);
  HangVerdict verdict;
  bool is_over = false;
  for (const LifeSample& sample : samples) {
    Duration silence = now - lives_.at(sample.local_rank).alive_at;
    is_over = is_over || silence >= timeout_;
    if (silence * 2 < timeout_) continue;
    verdict.silent.push_back(sample.local_rank);
    verdict.doing[sample.local_rank] = sample.doing;
  }
  if (!is_over) return std::nullopt;
  // One that runs and one that does not: who is silent while others work is the one that hangs.
  verdict.hung = verdict.silent.size() == samples.size() ? odd_ones(verdict.silent, verdict.doing)
                                                         : verdict.silent;
  std::stable_sort(verdict.hung.begin(), verdict.hung.end(),
                   [this](int a, int b) { return lives_.at(a).alive_at < lives_.at(b).alive_at; });
  const Life& first = lives_.at(verdict.hung.front());
  verdict.silence = now - first.alive_at;
  verdict.is_heartbeat = first.last.heartbeat_ns != 0;
  return verdict;
}

HangVerdict without_waiting(HangVerdict verdict, const std::vector<int>& waiting) {
  auto waits = [&](int local_rank) {
    return std::find(waiting.begin(), waiting.end(), local_rank) != waiting.end();
  };
  std::vector<int> suspects;
  for (int local_rank : verdict.silent) {
    if (!waits(local_rank)) suspects.push_back(local_rank);
  }
  if (suspects.empty() || waiting.empty()) return verdict;
  std::erase_if(verdict.hung, waits);
  if (verdict.hung.empty()) verdict.hung = suspects;
  for (int local_rank : waiting) verdict.doing[local_rank] = "waiting in a collective";
  return verdict;
}

std::string describe(const HangVerdict& verdict) {
  auto seconds = std::llround(std::chrono::duration<double>(verdict.silence).count());
  std::string text = verdict.is_heartbeat ? "hung: no heartbeat for "
                                          : "hung: no output, CPU time or heartbeat for ";
  text += std::to_string(seconds) + " s";
  const std::string& own = verdict.doing.at(verdict.hung.front());
  if (!own.empty()) text += "; it was " + own;
  Groups others;
  for (int local_rank : verdict.silent) {
    if (local_rank != verdict.hung.front())
      others[verdict.doing.at(local_rank)].push_back(local_rank);
  }
  for (const auto& [doing, local_ranks] : others) {
    text += (local_ranks.size() == 1 ? ", while local rank " : ", while local ranks ") +
            describe_ranks(local_ranks) + (local_ranks.size() == 1 ? " was " : " were ") +
            (doing.empty() ? "silent as well" : doing);
  }
  return text;
}

}  // namespace ddprun::agent
