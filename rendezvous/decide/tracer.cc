// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/tracer.h"

#include <algorithm>
#include <utility>

#include "rendezvous/decide/chronicle.h"
#include "rendezvous/decide/node_id.h"

namespace ddprun::rendezvous {
namespace {

using coordinator::Node;
using coordinator::Phase;
using coordinator::State;
using Kind = TraceEvent::Kind;

// Of a node that says it has more, the first.
constexpr int kTracedWorkers = 1024;

std::string span_of(const State& state) {
  switch (state.phase) {
    case Phase::Gathering:
      return "waiting for nodes";
    case Phase::Running:
      return "round " + std::to_string(state.round);
    case Phase::Stopping:
      return "stopping round " + std::to_string(state.round);
    case Phase::Ended:
      break;
  }
  return "";
}

TraceEvent stop_event(const State& state) {
  TraceEvent event;
  if (!state.last_stop) return event;
  std::string why = state.last_stop->why;
  if (auto failure = state.last_stop->failure) {
    failure->message.clear();
    why = describe_briefly(*failure);
  }
  return {.name = "stop: " + std::string(word_of(*state.last_stop)),
          .facts = {{"why", std::move(why)}}};
}

std::vector<std::pair<std::string, std::string>> round_facts(const State& state) {
  int nodes = 0;
  int workers = 0;
  for (const auto& [id, node] : state.nodes) {
    if (!node.is_member) continue;
    ++nodes;
    workers += node.join.participant.local_world_size;
  }
  return {{"nodes", std::to_string(nodes)},
          {"workers", std::to_string(workers)},
          {"restarts so far", std::to_string(state.restarts.count)}};
}

}  // namespace

struct Tracer::Looking {
  const std::string& run;
  WallTime now;
  const Sink& sink;
};

void Tracer::add(Looking& look, TraceEvent event) {
  event.at = look.now;
  if (look.sink) look.sink(look.run, event);
  kept_.emplace_back(look.run, std::move(event));
  ++end_;
  if (kept_.size() > kKeptTraceEvents) kept_.pop_front();
}

void Tracer::look_at_run(Looking& look, SeenRun& seen, const State& state) {
  std::string span = span_of(state);
  if (span == seen.span && state.phase == seen.phase) return;
  if (!seen.span.empty()) add(look, {.kind = Kind::End});
  if (state.phase == Phase::Stopping) add(look, stop_event(state));
  if (state.phase == Phase::Ended) add(look, {.name = "the run is over"});
  if (!span.empty()) {
    auto facts =
        state.phase == Phase::Running ? round_facts(state) : decltype(round_facts(state)){};
    add(look, {.kind = Kind::Begin, .name = span, .facts = std::move(facts)});
  }
  seen.span = std::move(span);
  seen.phase = state.phase;
}

void Tracer::look_at_node(Looking& look, SeenRun& seen, const std::string& id, const State& state,
                          bool is_other_round) {
  auto found = state.nodes.find(id);
  auto before = seen.nodes.find(id);
  const std::string name = coordinator::name_of(id);  // of all its incarnations
  auto says = [&](const std::string& host, std::string text) {
    add(look, {.node = name, .host = host, .thread = kAgentThread, .name = std::move(text)});
  };
  auto workers_end = [&](const SeenNode& node) {
    add(look, {.kind = Kind::End, .node = name, .host = node.host, .threads = node.workers});
  };
  if (found == state.nodes.end()) {
    if (before == seen.nodes.end()) return;
    if (before->second.is_up) workers_end(before->second);
    says(before->second.host, "is no node of the run any more");
    seen.nodes.erase(before);
    return;
  }
  const Node& node = found->second;
  bool is_new = before == seen.nodes.end();
  SeenNode& known = seen.nodes[id];
  SeenNode next{.host = node.join.host,
                .is_up = node.is_member && !node.is_down && !node.has_succeeded,
                .is_standby = node.is_standby,
                .is_away = node.away_at.has_value(),
                .is_leaving = node.leaves_by.has_value(),
                .workers = std::min(node.join.participant.local_world_size, kTracedWorkers)};
  if (is_new) says(next.host, "joined the run");
  if (next.is_standby && !known.is_standby) says(next.host, "stands by");
  if (next.is_away && !known.is_away) says(next.host, "its connection is lost");
  if (!next.is_away && known.is_away) says(next.host, "is back");
  if (next.is_leaving && !known.is_leaving) says(next.host, "leaves the run");
  if (known.is_up && (!next.is_up || is_other_round)) workers_end(known);
  if (next.is_up && (!known.is_up || is_other_round)) {
    bool has_place = node.round && node.round->number == state.round;
    add(look, {.kind = Kind::Begin,
               .node = name,
               .host = next.host,
               .threads = next.workers,
               .name = "rank ",
               .base_rank = has_place ? node.round->ranks.base_rank : 0,
               .facts = {{"round", std::to_string(state.round)}}});
  }
  known = std::move(next);
}

void Tracer::look(const std::string& run, const State* state, const std::string& node, WallTime now,
                  const Sink& sink) {
  if (state == nullptr) {
    runs_.erase(run);
    return;
  }
  Looking look{.run = run, .now = now, .sink = sink};
  SeenRun& seen = runs_[run];
  bool is_other_run =
      !state->run_uuid.empty() && !seen.run_uuid.empty() && state->run_uuid != seen.run_uuid;
  if (is_other_run) seen = {};
  seen.run_uuid = state->run_uuid;
  bool is_other_phase = state->phase != seen.phase || state->round != seen.round;
  bool is_other_round = state->phase == Phase::Running && is_other_phase;
  if (is_other_phase) look_at_run(look, seen, *state);
  seen.round = state->round;
  if (!node.empty() && !is_other_phase)
    return look_at_node(look, seen, node, *state, is_other_round);
  std::vector<std::string> gone;
  for (const auto& [id, known] : seen.nodes)
    if (!state->nodes.contains(id)) gone.push_back(id);
  for (const std::string& id : gone) look_at_node(look, seen, id, *state, is_other_round);
  for (const auto& [id, known] : state->nodes) look_at_node(look, seen, id, *state, is_other_round);
}

}  // namespace ddprun::rendezvous
