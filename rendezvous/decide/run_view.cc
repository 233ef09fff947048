// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/run_view.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/decide/findings.h"
#include "rendezvous/decide/stacks.h"
#include "rendezvous/decide/vitals.h"
#include "rendezvous/decide/waiting_text.h"
#include "rendezvous/decide/worker_waits.h"

namespace ddprun::rendezvous {
namespace {

using Json = nlohmann::ordered_json;
using coordinator::Node;
using coordinator::Phase;

// Of runs that are over the last ones are shown.
constexpr std::size_t kEndedShown = 32;
constexpr std::size_t kElsewhereShown = 32;

constexpr std::array<const char*, kPhases> kPhaseNames{"waiting", "training", "stopping", "ended"};

double seconds(Duration duration) {
  return std::chrono::duration<double>(std::max(duration, Duration::zero())).count();
}

double seconds(WallTime at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

const char* name_of(Phase phase) {
  return kPhaseNames.at(static_cast<std::size_t>(phase));
}

// As report.json calls them.
std::array<std::pair<const char*, Duration>, 4> by_name(const RunTimes& times) {
  return {{{"waiting", times.waiting},
           {"starting", times.starting},
           {"training", times.training},
           {"stopping", times.stopping}}};
}

const char* state_of(const Node& node, Phase phase) {
  if (node.is_standby) return "standby";
  if (node.leaves_by) return "leaving";
  if (node.away_at) return "away";
  if (!node.is_member) return "waiting";
  if (node.has_succeeded) return "succeeded";
  if (node.is_down) return "waiting";
  return phase == Phase::Running ? "training" : "stopping";
}

// `still`: for how long it has done nothing, where that is long.
Json to_json(const WorkerVitals& worker, std::optional<Duration> still, bool is_trusted) {
  auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json json = {{"local_rank", worker.local_rank},
               {"process", std::string(1, worker.state)},
               {"pid", worker.pid},
               {"cpu_percent", worker.cpu_percent},
               {"rss_kib", worker.rss_kib},
               {"output_bytes", or_null(worker.output_bytes)},
               {"output_age_ms", or_null(worker.output_age_ms)},
               {"heartbeat_age_ms", or_null(worker.heartbeat_age_ms)},
               {"step", or_null(worker.step)},
               {"still_s", still ? Json(seconds(*still)) : Json()}};
  if (worker.gpu) {
    json["gpu"] = {{"used_mib", worker.gpu->used_mib},
                   {"total_mib", worker.gpu->total_mib},
                   {"busy_percent", or_null(worker.gpu->busy_percent)}};
  }
  if (is_trusted && !worker.last_line.empty()) json["last_line"] = worker.last_line;
  return json;
}

// What a node has said last of its workers in this round.
std::optional<Vitals> vitals_of(const Node& node, const std::string& text) {
  auto most = static_cast<std::size_t>(std::max(node.join.participant.local_world_size, 0));
  std::optional<Vitals> vitals = decode_vitals(text, most);
  bool is_of_round = vitals && node.round && vitals->round == node.round->number && !node.is_down;
  return is_of_round ? std::move(vitals) : std::nullopt;
}

// `base_rank`: of the node.
void add_vitals(Json& json, const Vitals& vitals, int base_rank, const Pace& pace, bool is_trusted,
                MonoTime now) {
  json["vitals"] = Json::array();
  for (const WorkerVitals& worker : vitals.workers) {
    auto since = pace.still.find(base_rank + worker.local_rank);
    bool is_still = since != pace.still.end();
    json["vitals"].push_back(
        to_json(worker, is_still ? std::optional(now - since->second) : std::nullopt, is_trusted));
  }
  if (is_trusted) json["log_folder"] = text_or_null(vitals.log_folder);
}

Json to_json(const std::string& id, const Node& node, const coordinator::State& run,
             const RunsSource& source, bool is_trusted, MonoTime now) {
  bool has_place = node.is_member && node.round && node.round->number == run.round;
  Json json = {{"node", id},
               {"host", coordinator::host_of(run, node)},
               {"state", state_of(node, run.phase)},
               {"is_host", node.join.is_host},
               {"agent_pid", node.join.pid},
               {"role", node.join.participant.role},
               {"workers", node.join.participant.local_world_size},
               {"group_rank", has_place ? Json(node.round->ranks.group_rank) : Json()},
               {"base_rank", has_place ? Json(node.round->ranks.base_rank) : Json()},
               {"silent_s", seconds(now - node.seen)},
               {"log_folder", Json()},
               {"vitals", Json()}};
  if (!has_place || !source.vitals) return json;
  if (auto vitals = vitals_of(node, source.vitals(id)))
    add_vitals(json, *vitals, node.round->ranks.base_rank, run.pace, is_trusted, now);
  return json;
}

Json to_json(const Failure& failure, bool is_trusted) {
  Json json = {{"attempt", failure.restart_count},
               {"node", text_or_null(failure.node)},
               {"rank", failure.rank},
               {"local_rank", failure.local_rank},
               {"pid", failure.pid},
               {"exit_code", failure.status.shell_code()},
               {"signal", Json()},
               {"time", failure.at == WallTime{} ? Json() : Json(seconds(failure.at))}};
  if (failure.status.signal != 0) json["signal"] = process::signal_name(failure.status.signal);
  if (!is_trusted) return json;
  if (!failure.waited_in.empty() && failure.suspect_count > 0)
    json["suspects"] = describe_suspects(failure);
  json["message"] = text_or_null(failure.message);
  json["log_path"] = text_or_null(failure.log_path);
  json["traceback"] = text_or_null(failure.traceback);
  json["stderr_tail"] = text_or_null(failure.stderr_tail);
  return json;
}

Json to_json(const std::vector<Failure>& failures, bool is_trusted) {
  Json json = Json::array();
  for (const Failure& failure : failures) json.push_back(to_json(failure, is_trusted));
  return json;
}

Json to_json(const Happening& happening, bool is_trusted) {
  if (happening.kind == Happening::Kind::RoundBegan) {
    return {{"what", "round"},
            {"time", seconds(happening.at)},
            {"round", happening.round},
            {"nodes", happening.nodes},
            {"workers", happening.workers}};
  }
  bool is_stop = happening.kind == Happening::Kind::RoundStopped;
  return {{"what", is_stop ? "stop" : "end"},
          {"time", seconds(happening.at)},
          {"round", happening.round},
          {"cause", text_or_null(happening.cause)},
          {"why", text_or_null(is_trusted ? happening.why : happening.briefly)}};
}

Json to_json(const NodeEvent& event, bool is_trusted) {
  return {{"what", name_of(event.kind)},
          {"time", seconds(event.at)},
          {"host", text_or_null(event.host)},
          {"text", is_trusted ? event.what : event.briefly}};
}

void add_happenings(Json& json, const RunChronicle& chronicle, bool is_trusted) {
  json["happened"] = chronicle.happened;
  json["history"] = Json::array();
  for (const Happening& happening : chronicle.happenings)
    json["history"].push_back(to_json(happening, is_trusted));
  json["events"] = Json::array();
  for (const NodeEvent& event : chronicle.nodes.all())
    json["events"].push_back(to_json(event, is_trusted));
}

void add_chronicle(Json& json, const RunChronicle& chronicle, bool is_trusted, MonoTime now) {
  json["began"] = seconds(chronicle.began);
  json["in_state_s"] = seconds(now - chronicle.since);
  const RunTimes times = times_until(chronicle, now);
  for (const auto& [name, duration] : by_name(times)) json["time"][name] = seconds(duration);
  json["stops"] = chronicle.stops;
  add_happenings(json, chronicle, is_trusted);
}

// The nodes that the run has lost lately, by rank.
Json lost_nodes(const coordinator::State& run, const RunChronicle* chronicle, MonoTime now) {
  Json lost = Json::array();
  if (chronicle == nullptr || run.phase == Phase::Ended) return lost;
  for (const LostNode& node : chronicle->lost) {
    bool is_shown = node.round == run.round || now - node.at < kLostShown;
    if (!is_shown) continue;
    lost.push_back({{"node", node.id},
                    {"host", node.host},
                    {"workers", node.workers},
                    {"group_rank", node.group_rank},
                    {"base_rank", node.base_rank},
                    {"round", node.round},
                    {"ago_s", seconds(now - node.at)}});
  }
  return lost;
}

// The round that the nodes have now.
const command::Round* round_of(const coordinator::State& run) {
  for (const auto& [id, node] : run.nodes) {
    if (node.is_member && node.round && node.round->number == run.round) return &*node.round;
  }
  return nullptr;
}

// Members by rank, then the others.
std::vector<const std::pair<const std::string, Node>*> in_order(const coordinator::State& run) {
  std::vector<const std::pair<const std::string, Node>*> nodes;
  for (const auto& entry : run.nodes) nodes.push_back(&entry);
  auto place = [&](const auto* entry) {
    const Node& node = entry->second;
    bool has_place = node.is_member && node.round && node.round->number == run.round;
    return std::pair(has_place ? node.round->ranks.group_rank : kMaxCount, node.arrival);
  };
  std::ranges::sort(nodes, {}, place);
  return nodes;
}

// Now, by what is seen; and by what rounds were stopped for.
Json slow_ones(const coordinator::State& run) {
  Json slow = Json::array();
  for (const Behind& one : run.pace.behind)
    slow.push_back({{"rank", one.rank}, {"host", one.host}, {"why", one.why}});
  for (const KeptWaiting& one : kept_waiting_again(run.restarts.failures))
    slow.push_back({{"rank", one.rank}, {"host", text_or_null(one.node)}, {"why", describe(one)}});
  return slow;
}

// Of so many workers stacks are being taken, since a person has asked for them, or since one has
// waited for the others in vain.
int stacks_under_way(const coordinator::State& run, const RunsSource& source, MonoTime now) {
  constexpr Duration kLongest = std::chrono::seconds(5);  // that a node takes for them
  if (run.phase != Phase::Running) return 0;
  int workers = 0;
  auto add = [&](const std::string& id, bool is_one) {
    auto node = run.nodes.find(id);
    if (node == run.nodes.end()) return;
    int of_node = node->second.join.participant.local_world_size;
    auto most = static_cast<std::size_t>(std::max(of_node, 0));
    auto said = source.stacks ? decode_stacks(source.stacks(id), most) : std::nullopt;
    bool has_answered = !run.inspection && said && said->number == run.stack_inquiry.number;
    if (!has_answered) workers += is_one ? 1 : of_node;
  };
  if (run.inspection) {
    const auto& wait = run.inspection->failed.wait;
    bool takes_stacks = wait && !wait->has_lost_peer;
    for (const std::string& id : run.inspection->awaited)
      if (takes_stacks) add(id, false);
    return workers;
  }
  const coordinator::StackInquiry& last = run.stack_inquiry;
  bool is_recent = last.number > 0 && last.round == run.round && now - last.at < kLongest;
  if (!is_recent) return 0;
  for (const std::string& id : last.nodes) add(id, last.rank.has_value());
  return workers;
}

// Without its nodes.
Json to_json(const std::string& name, const coordinator::State& run, const RunsSource& source,
             bool is_trusted, MonoTime now) {
  const command::Round* round = round_of(run);
  bool waits = run.phase == Phase::Gathering || run.phase == Phase::Stopping;
  Json json = {{"run", name},
               {"uuid", text_or_null(run.run_uuid)},
               {"state", name_of(run.phase)},
               {"round", run.has_formed ? Json(run.round) : Json()},
               {"world_size", round ? Json(round->ranks.world_size) : Json()},
               {"master", round ? Json(to_string(round->master)) : Json()},
               {"min_nodes", run.settings.min_nodes},
               {"max_nodes", run.settings.max_nodes},
               {"restart_count", run.restarts.count},
               {"max_restarts", run.policy.max_restarts},
               {"waiting_for", waits ? Json(waiting_text(run) + time_left_text(run, now)) : Json()},
               {"lost", run.shortage ? Json(run.shortage->why) : Json()}};
  const RunChronicle* chronicle = source.chronicle->find(name);
  if (chronicle != nullptr) add_chronicle(json, *chronicle, is_trusted, now);
  json["lost_nodes"] = lost_nodes(run, chronicle, now);
  int stacks = stacks_under_way(run, source, now);
  json["taking_stacks"] = stacks > 0 ? Json(stacks) : Json();
  json["slow"] = slow_ones(run);
  json["slowest"] = text_or_null(run.pace.slowest);
  json["failures"] = to_json(run.restarts.failures, is_trusted);
  json["workers_store"] = worker_waits(run, source.waits);
  return json;
}

// Of the start of a run that is over; some of its nodes may still be leaving.
const RunChronicle* find_over(const Chronicle& chronicle, const std::string& run,
                              const std::string& run_uuid) {
  const RunChronicle* known = chronicle.find(run);
  if (known != nullptr && known->run_uuid == run_uuid) return known;
  return chronicle.find_ended(run, run_uuid);
}

Json to_json(const runs::Verdict& verdict, const Chronicle& chronicle, bool is_trusted,
             MonoTime now) {
  Json json = {{"run", verdict.run},
               {"uuid", text_or_null(verdict.run_uuid)},
               {"exit_code", verdict.end.exit_code},
               {"why", is_trusted ? text_or_null(verdict.end.why) : Json()},
               {"restart_count", verdict.end.restart_count},
               {"slowest", text_or_null(verdict.end.slowest)},
               {"ago_s", seconds(now - verdict.at)},
               {"failures", to_json(verdict.end.failures, is_trusted)}};
  const RunChronicle* known = find_over(chronicle, verdict.run, verdict.run_uuid);
  if (known != nullptr) add_happenings(json, *known, is_trusted);
  return json;
}

// All its nodes have left, or were lost, before the run had come to an end.
Json to_json(const runs::Past& past, const Chronicle& chronicle, bool is_trusted, MonoTime now) {
  const RunChronicle* known = find_over(chronicle, past.run, past.run_uuid);
  std::string why = "none of its nodes is left";
  bool was_stopped = known != nullptr && !known->happenings.empty() &&
                     known->happenings.back().kind == Happening::Kind::RoundStopped;
  if (was_stopped && is_trusted) why += " (" + known->happenings.back().why + ")";
  Json json = {{"run", past.run},
               {"uuid", text_or_null(past.run_uuid)},
               {"exit_code", Json()},
               {"why", why},
               {"restart_count", Json()},
               {"slowest", Json()},
               {"ago_s", seconds(now - past.at)},
               {"failures", Json::array()}};
  if (known != nullptr) add_happenings(json, *known, is_trusted);
  return json;
}

// The last runs that have ended without a verdict, newest first.  Not those whose nodes have come
// back since, which have come to an end after all, or which another host has.
std::vector<runs::Past> still_past(const runs::State& state) {
  std::vector<runs::Past> found;
  std::set<std::string> seen;
  for (auto past = state.pasts.rbegin(); past != state.pasts.rend(); ++past) {
    if (found.size() == kEndedShown) break;
    auto is_same = [&](const auto& other) { return other.run_uuid == past->run_uuid; };
    auto run = state.runs.find(past->run);
    bool has_come_back = run != state.runs.end() && is_same(run->second);
    if (seen.insert(past->run_uuid).second && !has_come_back && !state.moved.contains(past->run) &&
        std::ranges::none_of(state.verdicts, is_same))
      found.push_back(*past);
  }
  return found;
}

// The runs that other hosts have, as they have said here.
Json elsewhere(std::span<const RunsSource> sources) {
  Json json = Json::array();
  for (const RunsSource& source : sources) {
    for (const auto& [run, moved] : source.state->moved) {
      if (json.size() == kElsewhereShown) return json;
      json.push_back({{"run", run}, {"at", to_string(moved.to)}});
    }
  }
  return json;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A stranger may name thousands of runs and nodes: so many of them are shown, and of the runs those
// first that have had a round here.  In the metrics each run stands in thirty lines, so their names
// have a limit as well.
constexpr std::size_t kShownRuns = 512;
constexpr std::size_t kShownNodes = 4096;
constexpr std::size_t kMeasuredNameBytes = 32 * 1024;

struct ViewedRun {
  const std::string& name;
  const coordinator::State& state;
  const RunsSource& source;
};

std::vector<ViewedRun> first_runs(std::span<const RunsSource> sources, std::size_t name_bytes) {
  std::vector<ViewedRun> runs;
  for (bool has_formed : {true, false}) {
    for (const RunsSource& source : sources) {
      for (const auto& [name, run] : source.state->runs) {
        if (run.has_formed != has_formed) continue;
        if (runs.size() == kShownRuns || name.size() > name_bytes) return runs;
        name_bytes -= name.size();
        runs.push_back({.name = name, .state = run, .source = source});
      }
    }
  }
  return runs;
}

// It has ended, and nodes of it still end their workers: it is shown among the runs, with its
// nodes; then it is shown with its end.
bool is_ending(const runs::State& state, const runs::Verdict& verdict) {
  auto run = state.runs.find(verdict.run);
  return run != state.runs.end() && run->second.run_uuid == verdict.run_uuid &&
         run->second.phase == Phase::Ended && run->second.up_count > 0;
}

bool is_over(const runs::State& state, const coordinator::State& run) {
  if (run.phase != Phase::Ended || run.up_count > 0) return false;
  return std::ranges::any_of(state.verdicts, [&](const runs::Verdict& verdict) {
    return verdict.run_uuid == run.run_uuid;
  });
}

// nullptr: it has gone.
const coordinator::State* find_run(std::span<const RunsSource> sources, std::size_t source,
                                   const std::string& name) {
  if (source >= sources.size()) return nullptr;
  auto run = sources[source].state->runs.find(name);
  return run == sources[source].state->runs.end() ? nullptr : &run->second;
}

// Metrics.

// Of a label: backslash, quote and line end.
std::string label(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\' || c == '"' || c == '\n') out += '\\';
    out += c == '\n' ? 'n' : c;
  }
  return out;
}

// The lines of one family stand together.
class Family {
 public:
  Family(std::string& out, std::string name, std::string_view type, std::string_view help)
      : out_(out), name_(std::move(name)) {
    out_ += "# HELP " + name_ + ' ' + std::string(help) + "\n# TYPE " + name_ + ' ' +
            std::string(type) + '\n';
  }
  void add(const std::string& run, const std::string& value, std::string_view key = "",
           std::string_view of_key = "") {
    out_ += name_ + "{run=\"" + label(run) + '"';
    if (!key.empty()) out_ += ',' + std::string(key) + "=\"" + label(of_key) + '"';
    out_ += "} " + value + '\n';
  }

 private:
  std::string& out_;
  std::string name_;
};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

// Of a cause that there has been none of: zero.
template <class Value>
Value value_or_zero(const std::map<std::string, Value>& by_cause, std::string_view cause) {
  auto found = by_cause.find(std::string(cause));
  return found == by_cause.end() ? Value{} : found->second;
}

std::map<std::string, int> count_by_state(const coordinator::State& run, bool counts_workers) {
  std::map<std::string, int> counts;
  for (const char* state :
       {"training", "stopping", "succeeded", "waiting", "standby", "leaving", "away"})
    counts[state] = 0;
  for (const auto& [id, node] : run.nodes)
    counts[state_of(node, run.phase)] +=
        counts_workers ? node.join.participant.local_world_size : 1;
  return counts;
}

}  // namespace

void RunsText::begin(std::span<const RunsSource> sources, Now now, std::string& out) {
  node_room_ = kShownNodes;
  std::vector<ViewedRun> runs = first_runs(sources, std::string::npos);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const runs::State& state = *sources[i].state;
    const auto& verdicts = state.verdicts;
    auto first = verdicts.size() > kEndedShown ? verdicts.end() - kEndedShown : verdicts.begin();
    for (auto verdict = first; verdict != verdicts.end(); ++verdict) {
      if (!is_ending(state, *verdict)) ended_.push_back({.source = i, .end = *verdict});
    }
    for (runs::Past& past : still_past(state))
      ended_.push_back({.source = i, .end = std::move(past)});
    more_runs_ += sources[i].state->runs.size();
  }
  for (const ViewedRun& run : runs) {
    auto source = static_cast<std::size_t>(&run.source - sources.data());
    if (is_over(*run.source.state, run.state)) {
      --more_runs_;
    } else {
      places_.push_back({.source = source, .run = run.name});
    }
  }
  more_runs_ -= places_.size();
  std::ranges::stable_sort(ended_, {}, [](const Over& over) {
    return std::visit([](const auto& end) { return end.at; }, over.end);
  });
  if (ended_.size() > kEndedShown) ended_.erase(ended_.begin(), ended_.end() - kEndedShown);
  out += "\"time\": " + number(seconds(now.wall)) + ", \"runs\": [";
  part_ = Part::Runs;
}

// The run, up to its nodes.
void RunsText::add_run(std::span<const RunsSource> sources, Now now, std::string& out) {
  if (run_ == places_.size()) {
    out += "], \"more_runs\": " + std::to_string(more_runs_) + ", \"ended\": [";
    needs_comma_ = false;
    part_ = Part::Ended;
    return;
  }
  const Place& place = places_[run_++];
  const coordinator::State* run = find_run(sources, place.source, place.run);
  if (run == nullptr) return;
  Json json = to_json(place.run, *run, sources[place.source], is_trusted_, now.mono);
  std::size_t shown = std::min(run->nodes.size(), node_room_);
  json["more_nodes"] = run->nodes.size() - shown;
  node_room_ -= shown;
  nodes_.clear();
  const auto ordered = in_order(*run);
  for (const auto* entry : std::span(ordered).first(shown)) nodes_.push_back(entry->first);
  std::string text = dump(json);
  text.pop_back();  // the brace
  out += std::exchange(needs_comma_, true) ? "," : "";
  out += text + ",\"nodes\":[";
  node_ = 0;
  has_node_ = false;
  part_ = Part::Nodes;
}

void RunsText::add_node(std::span<const RunsSource> sources, Now now, std::string& out) {
  if (node_ == nodes_.size()) {
    out += "]}";
    part_ = Part::Runs;
    return;
  }
  const Place& place = places_[run_ - 1];
  const std::string& id = nodes_[node_++];
  const coordinator::State* run = find_run(sources, place.source, place.run);
  if (run == nullptr) return;
  auto node = run->nodes.find(id);
  if (node == run->nodes.end()) return;
  out += std::exchange(has_node_, true) ? "," : "";
  out += dump(to_json(id, node->second, *run, sources[place.source], is_trusted_, now.mono));
}

void RunsText::add_ended(std::span<const RunsSource> sources, Now now, std::string& out) {
  if (over_ == ended_.size()) {
    out += "], \"elsewhere\": " + dump(elsewhere(sources));
    part_ = Part::Done;
    return;
  }
  const Over& over = ended_[over_++];
  if (over.source >= sources.size()) return;
  out += std::exchange(needs_comma_, true) ? "," : "";
  const Chronicle& chronicle = *sources[over.source].chronicle;
  out += dump(std::visit(
      [&](const auto& end) { return to_json(end, chronicle, is_trusted_, now.mono); }, over.end));
}

bool RunsText::add(std::span<const RunsSource> sources, Now now, std::string& out) {
  // Some steps have no bytes.
  constexpr std::size_t kMostSteps = 512;
  std::string piece;
  for (std::size_t i = 0; i < kMostSteps && piece.size() < kPieceBytes; ++i) {
    switch (part_) {
      case Part::Beginning:
        begin(sources, now, piece);
        break;
      case Part::Runs:
        add_run(sources, now, piece);
        break;
      case Part::Nodes:
        add_node(sources, now, piece);
        break;
      case Part::Ended:
        add_ended(sources, now, piece);
        break;
      case Part::Done:
        out += piece;
        return false;
    }
  }
  out += piece;
  return true;
}

std::string runs_metrics(std::span<const RunsSource> sources, Now now) {
  const std::vector<ViewedRun> runs = first_runs(sources, kMeasuredNameBytes);
  auto for_each_run = [&runs](auto visit) {
    for (const ViewedRun& run : runs)
      visit(run.name, run.state, run.source.chronicle->find(run.name));
  };
  std::string out;
  Family round(out, "ddprun_round", "gauge", "Number of the last round.");
  for_each_run([&](const auto& name, const auto& run, auto*) {
    if (run.has_formed) round.add(name, std::to_string(run.round));
  });
  Family world(out, "ddprun_world_size", "gauge",
               "Workers of the present round; 0: there is none.");
  for_each_run([&](const auto& name, const auto& run, auto*) {
    const command::Round* present = run.phase == Phase::Running ? round_of(run) : nullptr;
    world.add(name, std::to_string(present ? present->ranks.world_size : 0));
  });
  Family wanted(out, "ddprun_wanted_nodes", "gauge", "The least nodes that a round needs.");
  for_each_run([&](const auto& name, const auto& run, auto*) {
    wanted.add(name, std::to_string(run.settings.min_nodes));
  });
  Family nodes(out, "ddprun_nodes", "gauge", "Nodes by what they do.");
  for_each_run([&](const auto& name, const auto& run, auto*) {
    for (const auto& [state, count] : count_by_state(run, false))
      nodes.add(name, std::to_string(count), "state", state);
  });
  Family workers(out, "ddprun_workers", "gauge", "Workers by what their node does.");
  for_each_run([&](const auto& name, const auto& run, auto*) {
    for (const auto& [state, count] : count_by_state(run, true))
      workers.add(name, std::to_string(count), "state", state);
  });
  Family restarts(out, "ddprun_restarts_total", "counter",
                  "Rounds that were stopped for another one, by cause.");
  for_each_run([&](const auto& name, const auto&, const RunChronicle* chronicle) {
    for (std::string_view word : kStopWords) {
      const std::uint64_t count = chronicle ? value_or_zero(chronicle->stops, word) : 0;
      restarts.add(name, std::to_string(count), "cause", word);
    }
  });
  Family left(out, "ddprun_restarts_left", "gauge", "Failures of workers that the run survives.");
  for_each_run([&](const auto& name, const auto& run, auto*) {
    left.add(name, std::to_string(run.policy.max_restarts - run.restarts.count));
  });
  Family phases(out, "ddprun_time_seconds_total", "counter",
                "Time of the run on this host, by what it did.");
  for_each_run([&](const auto& name, const auto&, const RunChronicle* chronicle) {
    if (chronicle == nullptr) return;
    const RunTimes times = times_until(*chronicle, now.mono);
    for (const auto& [phase, duration] : by_name(times))
      phases.add(name, number(seconds(duration)), "phase", phase);
  });
  Family hanging(out, "ddprun_hanging_seconds_total", "counter",
                 "Part of the training: since the last sign of life of workers that were then "
                 "ended for it.");
  for_each_run([&](const auto& name, const auto&, const RunChronicle* chronicle) {
    if (chronicle != nullptr) hanging.add(name, number(seconds(chronicle->hanging)));
  });
  Family restarting(out, "ddprun_restarting_seconds_total", "counter",
                    "From the end of training until training went on, by cause; part of the time "
                    "of the run.");
  for_each_run([&](const auto& name, const auto&, const RunChronicle* chronicle) {
    if (chronicle == nullptr) return;
    for (std::string_view word : kStopWords)
      restarting.add(name, number(seconds(value_or_zero(chronicle->restarting, word))), "cause",
                     word);
  });
  Family silence(out, "ddprun_node_silence_seconds", "gauge",
                 "The longest time for which a node of the run was not heard.");
  for_each_run([&](const auto& name, const auto& run, auto*) {
    Duration longest{};
    for (const auto& [id, node] : run.nodes) longest = std::max(longest, now.mono - node.seen);
    silence.add(name, number(seconds(longest)));
  });
  return out;
}

}  // namespace ddprun::rendezvous
