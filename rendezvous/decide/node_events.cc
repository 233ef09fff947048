// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/node_events.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

namespace ddprun::rendezvous {
namespace {

using Kind = NodeEvent::Kind;

// Of a node that was given up: as the nodes were told.
std::string why_lost(const coordinator::State& state, const std::string& host) {
  for (const std::string& why : {state.last_stop ? state.last_stop->why : std::string(),
                                 state.shortage ? state.shortage->why : std::string()}) {
    if (why.starts_with(host + " ")) return why.substr(host.size() + 1);
  }
  return "is no longer in the run";
}

}  // namespace

const char* name_of(NodeEvent::Kind kind) {
  constexpr std::array<const char*, 8> kNames{"joined", "failed", "leaving", "left",
                                              "away",   "back",   "lost",    "took_over"};
  return kNames.at(static_cast<std::size_t>(kind));
}

void NodeEvents::add(Kind kind, const std::string& node, WallTime at, std::string what,
                     std::string briefly) {
  auto host = hosts_.find(node);
  if (briefly.empty()) briefly = what;
  events_.push_back({.kind = kind,
                     .at = at,
                     .host = host == hosts_.end() ? "" : host->second,
                     .what = std::move(what),
                     .briefly = std::move(briefly)});
  if (events_.size() > kKept) events_.pop_front();
}

void NodeEvents::took_over(std::uint64_t round, WallTime at) {
  add(Kind::TookOver, "", at,
      "this host took the run over after round " + std::to_string(round) +
          ": from another one, or from itself before it was started again");
}

void NodeEvents::heard(const Message& message, const coordinator::State* state, WallTime at) {
  const std::string& id = message.node;
  bool is_known = hosts_.contains(id);
  const coordinator::Node* node = nullptr;
  if (state != nullptr) {
    auto found = state->nodes.find(id);
    if (found != state->nodes.end()) node = &found->second;
  }
  if (!is_known) {
    if (node == nullptr) return;
    hosts_[id] = node->join.host;
    return add(Kind::Joined, id, at, "joined");
  }
  if (const auto* failed = std::get_if<request::Failed>(&message.request)) {
    if (++failures_ > kFailuresOfRound) return;
    Failure failure = failed->failure;
    failure.node.clear();
    std::string what = "reported: " + describe_briefly(failure);
    failure.message.clear();
    add(Kind::Failed, id, at, std::move(what), "reported: " + describe_briefly(failure));
  } else if (const auto* leaving = std::get_if<request::Leaving>(&message.request)) {
    add(Kind::Leaving, id, at, leaving->why);
  } else if (const auto* left = std::get_if<request::Left>(&message.request)) {
    add(Kind::Left, id, at, left->why.empty() ? "has left" : left->why);
    if (node == nullptr) hosts_.erase(id);
  } else if (std::holds_alternative<request::Lost>(message.request)) {
    add(Kind::Away, id, at, "lost its connection");
  } else if (std::holds_alternative<request::Resume>(message.request)) {
    add(Kind::Back, id, at, "is back on a new connection");
  }
}

void NodeEvents::look(const coordinator::State& state, WallTime at) {
  if (hosts_.size() <= state.nodes.size()) return;
  for (auto known = hosts_.begin(); known != hosts_.end();) {
    if (state.nodes.contains(known->first)) {
      ++known;
      continue;
    }
    add(Kind::Lost, known->first, at, why_lost(state, known->second));
    known = hosts_.erase(known);
  }
}

}  // namespace ddprun::rendezvous
