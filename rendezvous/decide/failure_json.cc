// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/failure_json.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxMessageCost = 12 * 1024;  // of a failure's message, as JSON
constexpr std::size_t kMaxPathCost = 8 * 1024;
constexpr std::size_t kMaxOutputCost = 8 * 1024;      // of a traceback, likewise
constexpr std::size_t kMaxDoingCost = 200;            // of what a worker does
constexpr std::int64_t kMaxTime = 4'000'000'000'000;  // milliseconds: the year 2096

constexpr const char* kWhereabouts[] = {"unknown", "waits", "elsewhere"};

Whereabouts read_whereabouts(Reader& reader) {
  std::string word = reader.name("place");
  const auto* known = std::ranges::find(kWhereabouts, word);
  if (known != std::end(kWhereabouts)) return static_cast<Whereabouts>(known - kWhereabouts);
  reader.wrong("place", "none of this protocol's");
  return Whereabouts::Unknown;
}

Json list_of(const std::vector<Suspect>& suspects) {
  Json json = Json::array();
  for (const Suspect& suspect : suspects) {
    json.push_back({{"rank", suspect.rank},
                    {"pid", suspect.pid},
                    {"node", suspect.node},
                    {"has_come", suspect.has_come},
                    {"doing", shortened(suspect.doing, kMaxDoingCost)}});
  }
  return json;
}

int read_pid(Reader& part) {
  return part.integer("pid", 0, std::numeric_limits<int>::max());
}

std::vector<Suspect> read_suspects(Reader& reader) {
  return reader.list("suspects", kMaxSuspects, [](Reader& part) {
    return Suspect{.rank = part.integer("rank", 0),
                   .pid = read_pid(part),
                   .node = part.text("node", kMaxNameBytes),
                   .has_come = part.flag("has_come"),
                   .doing = part.text("doing")};
  });
}

// Who is suspected, in a failure.
void add_suspicion(const Failure& failure, Json& json) {
  if (failure.waited_in.empty()) return;
  json["waited_in"] = failure.waited_in;
  json["suspects"] = list_of(failure.suspects);
  json["suspect_count"] = failure.suspect_count;
  json["also_waited"] = failure.also_waited;
}

void read_suspicion(Reader& reader, Failure& failure) {
  if (!reader.has("waited_in")) return;
  failure.waited_in = reader.text("waited_in", kMaxNameBytes);
  failure.suspects = read_suspects(reader);
  failure.suspect_count = reader.integer("suspect_count", 0);
  failure.also_waited = reader.integer("also_waited", 0);
}

Json list_of(const std::vector<RankRange>& ranges) {
  Json json = Json::array();
  for (const RankRange& range : ranges)
    json.push_back({{"first", range.first}, {"count", range.count}});
  return json;
}

std::vector<RankRange> read_ended_before(Reader& reader) {
  return reader.list("ended_before", kMaxEndedNodes, [](Reader& part) {
    return RankRange{.first = part.integer("first", 0), .count = part.integer("count", 1)};
  });
}

}  // namespace

Json to_json(const Failure& failure) {
  Json json = {{"rank", failure.rank},
               {"local_rank", failure.local_rank},
               {"pid", failure.pid},
               {"node", failure.node},
               {"exit_code", failure.status.exit_code},
               {"signal", failure.status.signal},
               {"core", failure.status.core_dumped},
               {"message", shortened(failure.message, kMaxMessageCost)},
               {"log_path", shortened(failure.log_path, kMaxPathCost)},
               {"restart_count", failure.restart_count}};
  std::int64_t time = milliseconds(failure.at.time_since_epoch());
  if (time > 0 && time <= kMaxTime) json["time_ms"] = time;
  if (!failure.traceback.empty()) {
    json["traceback"] = shortened(failure.traceback, kMaxOutputCost);
  } else if (!failure.stderr_tail.empty()) {
    json["stderr"] = shortened(failure.stderr_tail, kMaxOutputCost);
  }
  add_suspicion(failure, json);
  if (std::int64_t hung = milliseconds(failure.hung_for); hung > 0)
    json["hung_ms"] = std::min(hung, kMaxTime);
  if (!failure.ended_before.empty()) json["ended_before"] = list_of(failure.ended_before);
  return json;
}

Failure read_failure(Reader& parent, const Json& json) {
  Reader reader(json);
  Failure failure{.rank = reader.integer("rank", 0),
                  .local_rank = reader.integer("local_rank", 0),
                  .pid = read_pid(reader),
                  .node = reader.text("node", kMaxNameBytes),
                  .status = {.exit_code = reader.integer("exit_code", 0, 255),
                             .signal = reader.integer("signal", 0, 128),
                             .core_dumped = reader.flag("core")},
                  .message = reader.lines("message"),
                  .log_path = reader.text("log_path"),
                  .restart_count = reader.integer("restart_count", 0)};
  if (reader.has("time_ms"))
    failure.at = WallTime(std::chrono::milliseconds(reader.number("time_ms", 0, kMaxTime)));
  if (reader.has("traceback")) failure.traceback = reader.lines("traceback");
  if (reader.has("stderr")) failure.stderr_tail = reader.lines("stderr");
  read_suspicion(reader, failure);
  if (reader.has("hung_ms"))
    failure.hung_for = std::chrono::milliseconds(reader.number("hung_ms", 0, kMaxTime));
  if (reader.has("ended_before")) failure.ended_before = read_ended_before(reader);
  parent.include(reader);
  return failure;
}

Json to_json(const TimedOutWait& wait) {
  return {{"in", wait.in},
          {"is_idle", wait.is_idle},
          {"has_lost_peer", wait.has_lost_peer},
          {"missing", wait.missing}};
}

TimedOutWait read_wait(Reader& parent, const Json& json) {
  Reader reader(json);
  TimedOutWait wait{.in = reader.text("in", kMaxNameBytes),
                    .is_idle = reader.has("is_idle") && reader.flag("is_idle"),
                    .has_lost_peer = reader.has("has_lost_peer") && reader.flag("has_lost_peer")};
  for (const Json& rank : reader.array("missing")) {
    bool is_rank = rank.is_number_integer() && rank >= 0 && rank <= kMaxCount;
    if (!is_rank || wait.missing.size() >= TimedOutWait::kMaxNamed) {
      reader.wrong("missing", "no list of ranks");
      break;
    }
    wait.missing.push_back(rank.get<int>());
  }
  parent.include(reader);
  return wait;
}

Json to_json(const Findings& findings) {
  Json workers = Json::array();
  for (const Finding& finding : findings.workers) {
    workers.push_back({{"rank", finding.rank},
                       {"pid", finding.pid},
                       {"place", kWhereabouts[static_cast<std::size_t>(finding.place)]}});
    if (!finding.doing.empty()) workers.back()["doing"] = shortened(finding.doing, kMaxDoingCost);
  }
  Json unconnected = Json::array();
  for (const Unconnected& one : findings.unconnected)
    unconnected.push_back({{"rank", one.rank}, {"pid", one.pid}});
  return {{"workers", std::move(workers)}, {"unconnected", std::move(unconnected)}};
}

Findings read_findings(Reader& reader) {
  auto finding = [](Reader& part) {
    return Finding{.rank = part.integer("rank", 0),
                   .pid = read_pid(part),
                   .place = read_whereabouts(part),
                   .doing = part.has("doing") ? part.text("doing") : ""};
  };
  auto unconnected = [](Reader& part) {
    return Unconnected{.rank = part.integer("rank", 0), .pid = read_pid(part)};
  };
  return {.workers = reader.list("workers", Findings::kMaxWorkers, finding),
          .unconnected = reader.list("unconnected", Findings::kMaxWorkers, unconnected)};
}

}  // namespace ddprun::rendezvous
