// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/waiting_text.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "rendezvous/decide/host_change.h"
#include "store/base/count.h"
#include "store/base/seconds.h"

namespace ddprun::rendezvous::coordinator {
namespace {

constexpr std::size_t kMaxNames = 8;

std::string range(const Settings& settings) {
  std::string text = std::to_string(settings.min_nodes);
  return settings.min_nodes == settings.max_nodes
             ? text
             : text + ".." + std::to_string(settings.max_nodes);
}

// "node0, node1 and 14 more", in the natural order of the names.
template <class Predicate>
std::string names_of(const State& state, Predicate wanted) {
  std::vector<std::string> names;
  for (const auto& [id, node] : state.nodes) {
    if (wanted(node)) names.push_back(node.join.host);
  }
  std::size_t shown = std::min(names.size(), kMaxNames);
  std::ranges::partial_sort(names, names.begin() + static_cast<std::ptrdiff_t>(shown),
                            comes_before_naturally);
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

std::string whole_seconds(Duration duration) {
  auto seconds = std::chrono::ceil<std::chrono::seconds>(std::max(duration, Duration::zero()));
  return std::to_string(seconds.count()) + " s";
}

// "2 of the 5 nodes of round 3 are here (node0, node1), and one is gone".
std::string lack_text(const State& state, const Lack& lack) {
  std::string text = std::to_string(lack.here) + " of the " +
                     count_of(static_cast<std::size_t>(lack.nodes), "node") + " of round " +
                     std::to_string(lack.round.number) + " are here";
  std::string names = names_of(state, [](const Node& node) { return !node.knows.by.empty(); });
  if (!names.empty()) text += " (" + names + ")";
  if (lack.gone > 0) text += ", " + std::to_string(lack.gone) + " known to be gone";
  // One of this coordinator's own round may not have heard of it, and counts all the same.
  auto is_new = [](const Node& node) {
    return node.knows.by.empty() && !node.is_member && !node.round;
  };
  auto comers =
      std::ranges::count_if(state.nodes, [&](const auto& node) { return is_new(node.second); });
  if (comers > 0) {
    text += "; " + names_of(state, is_new) + (comers == 1 ? " does" : " do") +
            " not count, with an agent that knows nothing of that round";
  }
  text +=
      "; an agent that is started again where one of the others was killed says so, unless the "
      "machine was started again, too";
  if (state.policy.quorum > 0) return text;
  text +=
      "; if the others are gone for good, stop these and start the run again under another "
      "--rdzv-id";
  if (lack.here > 0)
    text +=
        " (--rdzv-conf quorum=" + std::to_string(lack.here) + " lets so few go on by themselves)";
  return text;
}

bool waits_for_leases(const State& state) {
  return may_change_host(state) && state.phase == Phase::Gathering &&
         fence(state) > state.last_turn;
}

// Enough nodes are here, and one of them has not been heard since it may count.
bool waits_for_sign(const State& state) {
  return may_change_host(state) && state.phase == Phase::Gathering && !state.last_call &&
         may_form(state) && !may_go_on(state, state.last_turn);
}

// Of nodes that wait at another endpoint and do not reach this one.
std::string stuck_text(const State& state) {
  const auto& stuck = state.moving.stuck;
  if (!stuck || state.last_turn >= stuck->until) return "";
  std::string text = "; " + count_of(static_cast<std::size_t>(stuck->nodes), "node") +
                     (stuck->nodes == 1 ? " waits" : " wait") + " at " + to_string(stuck->at) +
                     ", and cannot connect to this place";
  if (goes_on_from_a_round(state)) return text;
  return text +
         "; the first round of a run begins at its first endpoint: name first in --rdzv-endpoint "
         "one that all nodes reach";
}

// What the user has said about it.
std::string quorum_text(const State& state) {
  return state.policy.quorum == 0 ? "" : " (quorum=" + std::to_string(state.policy.quorum) + ")";
}

}  // namespace

std::string waiting_text(const State& state) {
  bool has_all = static_cast<int>(state.nodes.size()) >= state.settings.min_nodes;
  if (state.former.awaited && state.phase == Phase::Gathering && has_all) {
    if (!state.former.awaited->round)
      return "waiting for nodes whose workers may still run, or for the end of their lease";
    int nodes = missing(*state.former.awaited);
    std::string who = nodes > 0 ? count_of(static_cast<std::size_t>(nodes), "node") : "nodes";
    return "waiting for " + who + " of the last start to come back, or for the end of the lease";
  }
  auto away = [](const Node& node) { return node.away_at || node.leaves_by; };
  bool is_blocked = std::ranges::any_of(
      state.nodes, [&](const auto& node) { return away(node.second) && node.second.is_down; });
  if (is_blocked && state.up_count == 0) {
    return "waiting for " + names_of(state, away) + ", whose connection is broken";
  }
  if (state.phase == Phase::Stopping) {
    std::string names =
        names_of(state, [](const Node& node) { return node.is_member && !node.is_down; });
    std::string text = names.empty() ? "waiting for the others of the round"
                                     : "waiting for " + names + " to stop the workers";
    if (is_alone(state, state.last_turn))
      text += "; too few of the nodes are heard here, and they may go on without this one";
    return text;
  }
  if (has_all && waits_for_first_endpoint(state)) {
    return "waiting for " + to_string(state.settings.endpoints.front()) +
           ": the first round of a run begins at its first endpoint";
  }
  if (auto lack = has_all ? lacking_now(state) : std::nullopt) {
    return "waiting for more of the last round's nodes, since the others may go on without "
           "these: " +
           lack_text(state, *lack) + quorum_text(state);
  }
  if (has_all && waits_for_leases(state))
    return "waiting until the leases of workers that another host of the run may have are over";
  if (has_all && waits_for_sign(state)) {
    return "all nodes that are needed are here (" +
           names_of(state, [](const Node&) { return true; }) +
           "); waiting for a further sign of life of each";
  }
  bool is_fenced = has_all && state.last_call && *state.last_call == first_round_fence(state);
  const std::string what =
      is_fenced ? "waiting for all nodes, or until no worker of an earlier host here can live: "
                : "waiting for nodes: ";
  return what + std::to_string(state.nodes.size()) + " of " + range(state.settings) + " joined (" +
         names_of(state, [](const Node&) { return true; }) + ")" + stuck_text(state);
}

std::string beside_text(const State& state) {
  return state.beside.empty() ? "" : "; also waiting here: " + state.beside;
}

std::string time_left_text(const State& state, MonoTime now) {
  if (state.phase != Phase::Gathering) return "";
  bool has_all = static_cast<int>(state.nodes.size()) >= state.settings.min_nodes;
  if (has_all && waits_for_leases(state))
    return ", for about " + whole_seconds(fence(state) - now) + " more";
  if (state.last_call && *state.last_call > now)
    return ", " + whole_seconds(*state.last_call - now) + " of last call left";
  std::string left = ", " + whole_seconds(state.gathering_since + state.policy.join_timeout - now);
  return left + (has_all ? " of join_timeout left"
                         : " left for " + std::to_string(state.settings.min_nodes) + " to come");
}

std::string newcomer_text(Duration wait) {
  return "a round runs; its nodes take in newcomers together, in " + whole_seconds(wait);
}

std::string returning_text(const State& state) {
  auto members =
      std::ranges::count_if(state.nodes, [](const auto& node) { return node.second.is_member; });
  return "a round goes on here whose nodes are coming back, " + std::to_string(members) +
         " so far; whether there is room for this node is known when the others have come";
}

std::string next_start_text(const std::string& why) {
  return why + "; this node waits until it has ended, and meets the others of the next start";
}

std::string too_few_text(const State& state) {
  return "only " + std::to_string(state.nodes.size()) + " of " + range(state.settings) +
         " nodes came within " + whole_seconds(state.policy.join_timeout) + " (" +
         names_of(state, [](const Node&) { return true; }) + ")" +
         (state.last_refusal.empty() ? "" : "; " + state.last_refusal) + beside_text(state) +
         (stuck_text(state).empty()
              ? "; start the others sooner, or raise join_timeout in --rdzv-conf"
              : stuck_text(state));
}

std::string no_majority_text(const State& state) {
  if (waits_for_first_endpoint(state)) {
    return to_string(state.settings.endpoints.front()) + " was not there within " +
           whole_seconds(state.policy.join_timeout) +
           ": the first round of a run begins at its first endpoint; name another one first, or "
           "start ddpd there";
  }
  std::string text =
      "too few nodes of the last round came within " + whole_seconds(state.policy.join_timeout);
  if (auto lack = lacking_now(state)) text += ": " + lack_text(state, *lack);
  return text + "; the others may go on elsewhere" + quorum_text(state);
}

std::string difference_text(const Settings& settings, const Settings& expected) {
  auto nnodes = [](const Settings& of) {
    return std::to_string(of.min_nodes) + ":" + std::to_string(of.max_nodes);
  };
  if (nnodes(settings) != nnodes(expected))
    return "--nnodes=" + nnodes(settings) + ", not " + nnodes(expected);
  auto places = [](const Settings& of) {
    std::string names;
    for (const Endpoint& each : of.endpoints)
      names += (names.empty() ? "--rdzv-endpoint=" : ",") + to_string(each);
    return names.empty() ? "one place in --rdzv-endpoint" : names;
  };
  if (settings.endpoints != expected.endpoints)
    return places(settings) + ", not " + places(expected);
  auto master = [](const Settings& of) {
    return of.master ? "the static backend with the workers' store at " + to_string(*of.master)
                     : std::string("the c10d backend");
  };
  return master(settings) + ", not " + master(expected);
}

std::string lease_text(const State& state) {
  std::string limit =
      "the keep-alive limit of the run is " + seconds_text(state.policy.silence_limit());
  if (state.lease_factor == 1) return limit;
  return std::to_string(state.lost_rounds) + " rounds in a row were lost to silence alone; " +
         limit + " from now on";
}

std::string policy_text(const Policy& policy) {
  return "--max-restarts=" + std::to_string(policy.max_restarts) + ", join_timeout " +
         whole_seconds(policy.join_timeout) + ", last_call_timeout " +
         whole_seconds(policy.last_call_timeout) + ", keep-alive limit " +
         seconds_text(policy.silence_limit());
}

}  // namespace ddprun::rendezvous::coordinator
