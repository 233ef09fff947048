// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/activity.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "agent/decide/rank_text.h"

namespace ddprun::agent {
namespace {

constexpr const char* kWaiting = "waiting in a collective";

using Groups = std::map<std::string, std::vector<int>>;  // by what they do

// With no majority: those that wait in the kernel, where nothing reaches them; else everybody.
std::vector<int> stuck_ones(const std::vector<int>& silent,
                            const std::map<int, std::string>& doing) {
  std::vector<int> stuck;
  for (int local_rank : silent) {
    if (doing.at(local_rank).starts_with("in D state")) stuck.push_back(local_rank);
  }
  return stuck.empty() ? silent : stuck;
}

// The ranks that differ from the rest, which must be more than half of all; else everybody.
std::vector<int> odd_ones(const std::vector<int>& silent, const std::map<int, std::string>& doing) {
  Groups groups;
  for (int local_rank : silent) groups[doing.at(local_rank)].push_back(local_rank);
  auto rest = std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (rest->second.size() * 2 <= silent.size() || rest->second.size() == silent.size())
    return stuck_ones(silent, doing);
  std::vector<int> odd;
  for (int local_rank : silent) {
    if (doing.at(local_rank) != rest->first) odd.push_back(local_rank);
  }
  return odd;
}

bool is_working(Duration used, Duration between) {
  return used >= kIdleTime &&
         static_cast<double>(used.count()) >= kIdleShare * static_cast<double>(between.count());
}

bool is_moving(std::uint64_t bytes, Duration between) {
  double seconds = std::chrono::duration<double>(between).count();
  return static_cast<double>(bytes) >= static_cast<double>(kMovingBytes) * std::max(1.0, seconds);
}

std::string signs_looked_for(const HangVerdict& verdict) {
  if (verdict.is_heartbeat) return "heartbeat";
  return verdict.is_output_seen ? "output, CPU time or heartbeat" : "CPU time or heartbeat";
}

}  // namespace

Duration look_period(Duration timeout) {
  return std::clamp<Duration>(timeout / 20, std::chrono::milliseconds(50), std::chrono::seconds(5));
}

void ActivityLog::note(const ActivitySample& sample, MonoTime now) {
  auto [found, is_new] = activities_.try_emplace(
      sample.local_rank, Activity{sample, now, sample.cpu_time, sample.moved_bytes});
  if (is_new) return;
  Activity& activity = found->second;
  // A child that has ended takes its part with it, until it is waited for.
  activity.cpu_time = std::min(activity.cpu_time, sample.cpu_time);
  activity.moved_bytes = std::min(activity.moved_bytes, sample.moved_bytes);
  bool is_beating = sample.heartbeat_ns != 0;
  bool is_alive = sample.heartbeat_ns != activity.last.heartbeat_ns;
  if (!is_beating) {
    is_alive = sample.output_bytes != activity.last.output_bytes ||
               is_working(sample.cpu_time - activity.cpu_time, now - activity.alive_at) ||
               is_moving(sample.moved_bytes - activity.moved_bytes, now - activity.alive_at);
  }
  activity.last = sample;
  if (!is_alive) return;
  activity.alive_at = now;
  activity.cpu_time = sample.cpu_time;
  activity.moved_bytes = sample.moved_bytes;
}

// While this process was stopped, by Ctrl-Z or with its machine, so were the workers; and one look
// that is late says nothing about what was in between.
void ActivityLog::forgive_own_silence(MonoTime now) {
  Duration away = last_look_ ? now - *last_look_ - kLateLooks * look_period(timeout_) : Duration();
  last_look_ = now;
  if (away <= Duration::zero()) return;
  for (auto& [local_rank, activity] : activities_) activity.alive_at += away;
}

std::optional<HangVerdict> ActivityLog::look(const std::vector<ActivitySample>& samples,
                                             MonoTime now) {
  forgive_own_silence(now);
  for (const ActivitySample& sample : samples) note(sample, now);
  HangVerdict verdict;
  bool is_over = false;
  for (const ActivitySample& sample : samples) {
    Duration silence = now - activities_.at(sample.local_rank).alive_at;
    is_over = is_over || silence >= timeout_;
    if (silence * 2 < timeout_) {
      verdict.busy.push_back(sample.local_rank);
      continue;
    }
    verdict.silent.push_back(sample.local_rank);
    verdict.doing[sample.local_rank] = sample.doing;
    verdict.alive_at[sample.local_rank] = now - silence;
  }
  if (!is_over) return std::nullopt;
  // One that runs and one that does not: who is silent while others work is the one that hangs.
  verdict.hung = verdict.silent.size() == samples.size() ? odd_ones(verdict.silent, verdict.doing)
                                                         : verdict.silent;
  std::stable_sort(verdict.hung.begin(), verdict.hung.end(), [this](int a, int b) {
    return activities_.at(a).alive_at < activities_.at(b).alive_at;
  });
  verdict.is_clear =
      verdict.hung.size() < verdict.silent.size() || verdict.silent.size() < samples.size();
  const Activity& first = activities_.at(verdict.hung.front());
  verdict.silence = now - first.alive_at;
  verdict.is_heartbeat = first.last.heartbeat_ns != 0;
  verdict.is_output_seen = first.last.is_output_seen;
  return verdict;
}

HangVerdict without_waiting(HangVerdict verdict, const std::map<int, bool>& waits) {
  auto is_waiting = [&](int local_rank) {
    auto found = waits.find(local_rank);
    return found != waits.end() && found->second;
  };
  std::vector<int> suspects;
  for (int local_rank : verdict.silent) {
    if (is_waiting(local_rank)) {
      verdict.doing[local_rank] = kWaiting;
    } else {
      suspects.push_back(local_rank);
    }
  }
  if (suspects.empty()) {
    verdict.is_clear = false;
    return verdict;
  }
  if (suspects.size() < verdict.silent.size()) {
    std::erase_if(verdict.hung, is_waiting);
    if (verdict.hung.empty()) verdict.hung = suspects;
    verdict.is_clear = true;
  } else if (suspects.size() == 1 && waits.contains(suspects.front())) {
    verdict.is_clear = true;  // it has no other beside it to differ from
  }
  return verdict;
}

std::string describe(const HangVerdict& verdict) {
  auto seconds = std::llround(std::chrono::duration<double>(verdict.silence).count());
  std::string text =
      "hung: no " + signs_looked_for(verdict) + " for " + std::to_string(seconds) + " s";
  if (!verdict.is_output_seen && !verdict.is_heartbeat)
    text += " (its output is not seen without --tee)";
  const std::string& own = verdict.doing.at(verdict.hung.front());
  if (!own.empty()) text += "; it was " + own;
  if (!own.empty() && !verdict.place.empty()) text += ", in " + verdict.place;
  auto ranks = [&verdict](std::vector<int> local_ranks) {
    for (int& rank : local_ranks) rank += verdict.base_rank;
    return name_ranks(local_ranks);
  };
  Groups others;
  for (int local_rank : verdict.silent) {
    if (local_rank != verdict.hung.front())
      others[verdict.doing.at(local_rank)].push_back(local_rank);
  }
  for (const auto& [doing, local_ranks] : others) {
    text += ", while " + ranks(local_ranks) + (local_ranks.size() == 1 ? " was " : " were ") +
            (doing.empty() ? "silent as well" : doing);
  }
  if (!verdict.busy.empty())
    text += ", while " + ranks(verdict.busy) +
            (verdict.busy.size() == 1 ? " was at work" : " were at work");
  // Of one that waits for its peers the others are asked.
  bool is_waiting = own == kWaiting;
  if (!is_waiting && verdict.hung.size() > 1 && verdict.hung.size() == verdict.silent.size()) {
    text += "; which of them holds up the rest is not known: compare their stacks";
  }
  return text;
}

}  // namespace ddprun::agent
