// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/stack_inquiry.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/decide/outgoing.h"
#include "rendezvous/decide/run_state.h"
#include "rendezvous/decide/runs.h"
#include "rendezvous/decide/stacks.h"
#include "store/base/number.h"
#include "store/base/percent.h"

namespace ddprun::rendezvous {
namespace {

using Json = nlohmann::ordered_json;
using coordinator::Node;

constexpr std::string_view kStacksPage = "/stacks/";

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json to_json(const WorkerStack& worker) {
  return {{"rank", worker.rank},           {"pid", worker.pid},
          {"in", text_or_null(worker.in)}, {"place", text_or_null(worker.place)},
          {"doing", worker.doing},         {"waits", worker.waits ? Json(*worker.waits) : Json()},
          {"frames", worker.frames},       {"problem", text_or_null(worker.problem)}};
}

// A node that has answered has other workers than it had, where the round is another one by now.
Json to_json(const Node& node, const std::string& host, const std::string& text,
             std::uint64_t number) {
  auto most = static_cast<std::size_t>(std::max(node.join.participant.local_world_size, 0));
  std::optional<NodeStacks> stacks = decode_stacks(text, most);
  bool has_answered = stacks && stacks->number == number;
  Json json = {{"host", host},
               {"group_rank", node.last_rank ? Json(*node.last_rank) : Json()},
               {"base_rank", node.round ? Json(node.round->ranks.base_rank) : Json()},
               {"workers", node.join.participant.local_world_size},
               {"has_answered", has_answered},
               {"tools", Json::array()},
               {"stacks", Json::array()}};
  if (!has_answered) return json;
  json["tools"] = stacks->tools;
  for (const WorkerStack& worker : stacks->workers) json["stacks"].push_back(to_json(worker));
  return json;
}

}  // namespace

namespace coordinator {
namespace {

// Of a round that another coordinator has sent it, its ranks are not known here.
bool may_have(const Node& node, int rank) {
  if (!node.round) return true;
  int first = node.round->ranks.base_rank;
  return rank >= first && rank - first < node.join.participant.local_world_size;
}

}  // namespace

void ask_for_stacks(State& state, Outgoing& out, std::optional<int> rank, MonoTime now) {
  StackInquiry& last = state.stack_inquiry;
  if (state.phase != Phase::Running || state.inspection) return;
  if (last.number > 0 && now - last.at < kStacksPeriod) return;
  StackInquiry next{.number = last.number + 1, .rank = rank, .round = state.round, .at = now};
  for (const auto& [id, node] : state.nodes) {
    if (!is_up(node) || node.leaves_by || (rank && !may_have(node, *rank))) continue;
    next.nodes.insert(id);
    out.send(id, command::TakeStacks{.round = next.round, .number = next.number, .rank = rank});
  }
  if (!next.nodes.empty()) last = std::move(next);
}

}  // namespace coordinator

std::string to_string(const StacksTarget& target) {
  std::string text = std::string(kStacksPage) + percent_encoded(target.run);
  return target.rank ? text + '/' + std::to_string(*target.rank) : text;
}

std::optional<StacksTarget> stacks_target_of(std::string_view target) {
  if (!target.starts_with(kStacksPage)) return std::nullopt;
  target.remove_prefix(kStacksPage.size());
  StacksTarget wanted;
  if (auto slash = target.find('/'); slash != std::string_view::npos) {
    wanted.rank = number_in<int>(target.substr(slash + 1));
    if (!wanted.rank || *wanted.rank < 0) return std::nullopt;
    target = target.substr(0, slash);
  }
  auto run = percent_decoded(target);
  if (!run) return std::nullopt;
  wanted.run = std::move(*run);
  return wanted;
}

std::optional<std::string> stacks_json(const runs::State& state, const std::string& run,
                                       const std::function<std::string(const std::string&)>& stacks,
                                       MonoTime now) {
  auto found = state.runs.find(run);
  if (found == state.runs.end()) return std::nullopt;
  const coordinator::State& it = found->second;
  const coordinator::StackInquiry& last = it.stack_inquiry;
  Duration left = last.at + coordinator::kStacksPeriod - now;
  bool is_free = last.number == 0 || left <= Duration::zero();
  Json json = {{"run", run},
               {"is_training", it.phase == coordinator::Phase::Running},
               {"number", last.number},
               {"rank", last.rank ? Json(*last.rank) : Json()},
               {"age_ms", last.number == 0 ? Json() : Json(milliseconds(now - last.at))},
               {"next_in_ms", is_free ? 0 : milliseconds(left)},
               {"is_current", last.round == it.round},
               {"nodes", Json::array()}};
  std::map<std::pair<int, std::string>, const Node*> by_rank;
  for (const std::string& id : last.nodes) {
    auto node = it.nodes.find(id);
    if (node != it.nodes.end())
      by_rank[{node->second.last_rank.value_or(kMaxCount), id}] = &node->second;
  }
  for (const auto& [place, node] : by_rank)
    json["nodes"].push_back(
        to_json(*node, coordinator::host_of(it, *node), stacks(place.second), last.number));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ddprun::rendezvous
