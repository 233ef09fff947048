// SPDX-License-Identifier: BSD-3-Clause
#include "cli/wait_text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/json_fields.h"
#include "cli/stack_text.h"
#include "store/base/count.h"

namespace ddprun::cli {
namespace {

constexpr std::size_t kNamed = 8;  // each by itself; of more the ranks only

struct Worker {
  std::int64_t rank = 0;
  std::string host{};
  std::int64_t pid = 0;
  bool has_ended = false;
  std::string how{};  // " with exit code 0"; empty: not known
};

struct Workers {
  std::vector<Worker> all{};  // that are known
  std::int64_t count = 0;     // of the runs, known or not

  // The only one with this process id, and of this rank.
  const Worker* find(std::int64_t pid, std::optional<std::int64_t> rank = {}) const {
    const Worker* found = nullptr;
    for (const Worker& worker : all) {
      if (worker.pid != pid || (rank && worker.rank != *rank)) continue;
      if (found != nullptr) return nullptr;
      found = &worker;
    }
    return found;
  }
};

// Of a worker that has failed, by the run's failures; of others by what its node says.
std::string how_it_ended(const Json& run, const Json& node, const Worker& worker) {
  for (const Json& failure : field(run, "failures")) {
    bool is_it = count(failure, "pid") == worker.pid && count(failure, "rank") == worker.rank;
    if (!is_it) continue;
    std::string signal = text(failure, "signal");
    return signal.empty() ? " with exit code " + std::to_string(count(failure, "exit_code"))
                          : " by " + signal;
  }
  return text(node, "state") == "succeeded" ? " with exit code 0" : "";
}

void add_workers(const Json& run, Workers& workers) {
  workers.count += std::max<std::int64_t>(count(run, "world_size"), 0);
  for (const Json& node : field(run, "nodes")) {
    if (!number(node, "base_rank")) continue;
    for (const Json& vitals : field(node, "vitals")) {
      Worker worker{.rank = count(node, "base_rank") + count(vitals, "local_rank"),
                    .host = text(node, "host"),
                    .pid = count(vitals, "pid"),
                    .has_ended = has_ended(vitals)};
      if (worker.has_ended) worker.how = how_it_ended(run, node, worker);
      workers.all.push_back(std::move(worker));
    }
  }
}

// "rank 3": 3.
std::optional<std::int64_t> rank_in(const std::string& name) {
  constexpr std::string_view kRank = "rank ";
  constexpr std::size_t kMostDigits = 9;
  std::string_view digits = name;
  if (!digits.starts_with(kRank)) return std::nullopt;
  digits.remove_prefix(kRank.size());
  bool is_number = !digits.empty() && digits.size() <= kMostDigits &&
                   digits.find_first_not_of("0123456789") == std::string_view::npos;
  if (!is_number) return std::nullopt;
  return std::stoll(std::string(digits));
}

// Announced workers that have not connected.
void add_unconnected(const Json& expected, const Workers& workers, Lines& lines) {
  std::map<std::string, std::vector<std::int64_t>> ranks_by_state;
  std::map<std::string, Lines> named_by_state;  // "has not connected"
  std::size_t shown = 0;
  for (const Json& missing : field(expected, "missing")) {
    const std::string name = text(missing, "name");
    const std::optional<std::int64_t> rank = rank_in(name);
    const Worker* worker = rank ? workers.find(count(missing, "pid"), rank) : nullptr;
    bool has_ended = worker != nullptr && worker->has_ended;
    std::string state =
        has_ended ? "ended" + worker->how + " and never connected" : "not connected";
    if (rank) ranks_by_state[state].push_back(*rank);
    std::string who = name + " (pid " + std::to_string(count(missing, "pid")) + " on " +
                      text(missing, "host") + ")";
    named_by_state[state].push_back(std::move(who));
    ++shown;
  }
  for (auto& [state, named] : named_by_state) {
    std::vector<std::int64_t>& ranks = ranks_by_state[state];
    std::ranges::sort(ranks);
    if (named.size() > kNamed && ranks.size() == named.size()) {
      lines.push_back(ranks_text(ranks) + " have " + state);
      continue;
    }
    std::ranges::stable_sort(named, {}, [](const std::string& who) {
      return std::pair(rank_in(who.substr(0, who.find(" ("))).value_or(0), who);
    });
    for (const std::string& who : named) lines.push_back(who + " has " + state);
  }
  if (std::int64_t more = count(expected, "missing_count") - static_cast<std::int64_t>(shown);
      more > 0)
    lines.push_back(std::to_string(more) + " more have not connected");
}

// All that wait for the same.
struct Group {
  std::vector<std::int64_t> ranks{};
  Lines others{};  // clients whose rank is not known
  double longest_s = 0;
};

// "'a', 'b' and 3 other keys".
std::string awaited_keys(const Json& waiter) {
  std::string names;
  std::int64_t shown = 0;
  for (const Json& name : field(waiter, "missing")) {
    if (!name.is_string()) continue;
    names += (names.empty() ? "'" : ", '") + printable(name.get<std::string>()) + "'";
    ++shown;
  }
  if (std::int64_t more = count(waiter, "missing_count") - shown; more > 0 && shown > 0)
    names += " and " + count_of(more, "other key");
  return names;
}

std::string who_waits(Group& group) {
  std::ranges::sort(group.ranks);
  std::string who = group.ranks.empty() ? "" : ranks_text(group.ranks);
  for (std::size_t i = 0; i < std::min(group.others.size(), kNamed); ++i)
    who += (who.empty() ? "" : ", ") + group.others[i];
  if (group.others.size() > kNamed)
    who += " and " + count_of(group.others.size() - kNamed, "other client");
  return who;
}

// "rank 39 (node7, pid 71), which has ended".
std::string described(const Worker& worker) {
  return "rank " + std::to_string(worker.rank) + " (" + worker.host + ", pid " +
         std::to_string(worker.pid) + ")" +
         (worker.has_ended ? ", which has ended" + worker.how : "");
}

std::string not_come(const Workers& workers, const std::set<std::int64_t>& waiting) {
  std::vector<const Worker*> missing;
  for (const Worker& worker : workers.all)
    if (!waiting.contains(worker.rank)) missing.push_back(&worker);
  if (missing.empty()) return "";
  std::ranges::sort(missing, {}, &Worker::rank);
  std::vector<std::int64_t> ranks;
  std::string named;
  for (const Worker* worker : missing) {
    ranks.push_back(worker->rank);
    named += (named.empty() ? "" : "; ") + described(*worker);
  }
  return "; not come: " + (missing.size() > kNamed ? ranks_text(ranks) : named);
}

}  // namespace

Lines store_wait_lines(const Json& store, const Json& page, std::string_view run) {
  Workers workers;
  std::size_t runs = 0;
  for (const Json& each : field(page, "runs")) {
    if (!is_named(each, run)) continue;
    add_workers(each, workers);
    ++runs;
  }
  Lines lines;
  add_unconnected(field(store, "expected"), workers, lines);

  std::map<std::string, Group> groups;
  std::set<std::int64_t> waiting;
  std::int64_t shown = 0;
  for (const Json& waiter : field(store, "waiting")) {
    ++shown;
    if (text(waiter, "namespace").starts_with("ddprun")) continue;  // the agents, as always
    Group& group = groups[awaited_keys(waiter)];
    group.longest_s = std::max(group.longest_s, number(waiter, "waiting_ms").value_or(0) / 1000);
    const Worker* worker = number(waiter, "pid") ? workers.find(count(waiter, "pid")) : nullptr;
    if (worker != nullptr) {
      group.ranks.push_back(worker->rank);
      waiting.insert(worker->rank);
      continue;
    }
    group.others.push_back(
        text(waiter, "peer") +
        (number(waiter, "pid") ? " (pid " + std::to_string(count(waiter, "pid")) + ")" : ""));
  }
  const std::int64_t more = std::max<std::int64_t>(count(store, "waiting_count") - shown, 0);
  auto known = static_cast<std::int64_t>(workers.all.size());
  bool are_all_known = runs == 1 && more == 0 && known > 0 && known == workers.count;

  std::vector<std::pair<std::string, Group>> in_order(groups.begin(), groups.end());
  auto size_of = [](const auto& entry) {
    return entry.second.ranks.size() + entry.second.others.size();
  };
  std::ranges::stable_sort(in_order, std::greater(), size_of);
  for (auto& [names, group] : in_order) {
    std::string line = who_waits(group) + ": " + names + " for " + for_seconds(group.longest_s);
    bool are_most = 2 * group.ranks.size() > workers.all.size() && group.others.empty();
    if (are_all_known && are_most) line += not_come(workers, waiting);
    lines.push_back(std::move(line));
  }
  if (more > 0) lines.push_back(count_of(more, "other client") + (more == 1 ? " waits" : " wait"));
  return lines;
}

}  // namespace ddprun::cli
