// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/messages.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rendezvous/decide/fields.h"
#include "store/base/text.h"
#include "store/base/variant.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxMessageCost = 12 * 1024;  // of a failure's message, as JSON
constexpr std::size_t kMaxPathCost = 8 * 1024;
constexpr std::size_t kMaxOutputCost = 8 * 1024;                   // of a traceback, likewise
constexpr std::size_t kMaxDoingCost = 200;                         // of what a worker does
constexpr std::size_t kMaxEndBytes = kMaxMessageBytes - 4 * 1024;  // for the failures of an End
constexpr std::int64_t kMaxPeriods = 1'000'000;
constexpr std::int64_t kMaxPulse = std::int64_t{1} << 60U;
constexpr std::int64_t kMaxTime = 4'000'000'000'000;  // milliseconds: the year 2096

// What a byte takes as JSON, at most: one that is no UTF-8 becomes U+FFFD.
std::size_t cost(char byte) {
  auto code = static_cast<unsigned char>(byte);
  if (code < 0x20 || code == 0x7f) return 6;
  return code >= 0x80 ? 3 : byte == '"' || byte == '\\' ? 2 : 1;
}

// The end of a long text says more than its beginning: a traceback ends with the error.
std::string shortened(const std::string& text, std::size_t max_cost) {
  std::size_t begin = text.size();
  for (std::size_t total = 0; begin > 0; --begin) {
    total += cost(text[begin - 1]);
    if (total > max_cost) break;
  }
  return begin == 0 ? text : "..." + std::string(end_of(text, text.size() - begin));
}

std::string written(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

Json to_json(const Endpoint& endpoint) {
  return {{"host", endpoint.host}, {"port", endpoint.port}};
}

Endpoint read_endpoint(Reader& parent, const char* name) {
  Reader reader(parent.object(name));
  Endpoint endpoint{.host = reader.name("host"), .port = reader.port("port")};
  parent.include(reader);
  return endpoint;
}

Json to_json(const std::vector<Suspect>& suspects) {
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

std::vector<Suspect> read_suspects(Reader& reader) {
  std::vector<Suspect> suspects;
  for (const Json& each : reader.array("suspects")) {
    if (suspects.size() >= kMaxSuspects) {
      reader.wrong("suspects", "too many");
      break;
    }
    Reader part(each);
    suspects.push_back({.rank = part.integer("rank", 0),
                        .pid = part.integer("pid", 0, std::numeric_limits<int>::max()),
                        .node = part.text("node", kMaxNameBytes),
                        .has_come = part.flag("has_come"),
                        .doing = part.text("doing")});
    reader.include(part);
  }
  return suspects;
}

Json to_json(const TimedOutWait& wait) {
  return {{"in", wait.in}, {"missing", wait.missing}};
}

TimedOutWait read_wait(Reader& parent, const Json& json) {
  Reader reader(json);
  TimedOutWait wait{.in = reader.text("in", kMaxNameBytes)};
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

constexpr const char* kWhereabouts[] = {"unknown", "waits", "elsewhere"};

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

Whereabouts read_whereabouts(Reader& reader) {
  std::string word = reader.name("place");
  const auto* known = std::ranges::find(kWhereabouts, word);
  if (known != std::end(kWhereabouts)) return static_cast<Whereabouts>(known - kWhereabouts);
  reader.wrong("place", "none of this protocol's");
  return Whereabouts::Unknown;
}

Findings read_findings(Reader& reader) {
  Findings findings;
  for (const Json& each : reader.array("workers")) {
    if (findings.workers.size() >= Findings::kMaxWorkers) {
      reader.wrong("workers", "too many");
      break;
    }
    Reader part(each);
    findings.workers.push_back({.rank = part.integer("rank", 0),
                                .pid = part.integer("pid", 0, std::numeric_limits<int>::max()),
                                .place = read_whereabouts(part),
                                .doing = part.has("doing") ? part.text("doing") : ""});
    reader.include(part);
  }
  for (const Json& each : reader.array("unconnected")) {
    if (findings.unconnected.size() >= Findings::kMaxWorkers) {
      reader.wrong("unconnected", "too many");
      break;
    }
    Reader part(each);
    findings.unconnected.push_back(
        {.rank = part.integer("rank", 0),
         .pid = part.integer("pid", 0, std::numeric_limits<int>::max())});
    reader.include(part);
  }
  return findings;
}

// Who is suspected, in a failure.
void add_suspicion(const Failure& failure, Json& json) {
  if (failure.waited_in.empty()) return;
  json["waited_in"] = failure.waited_in;
  json["suspects"] = to_json(failure.suspects);
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
  return json;
}

Failure read_failure(Reader& parent, const Json& json) {
  Reader reader(json);
  Failure failure{.rank = reader.integer("rank", 0),
                  .local_rank = reader.integer("local_rank", 0),
                  .pid = reader.integer("pid", 0, std::numeric_limits<int>::max()),
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
  parent.include(reader);
  return failure;
}

Json to_json(const std::vector<Unsettled>& after) {
  Json json = Json::array();
  for (const Unsettled& round : after) {
    json.push_back({{"round", round.id.number},
                    {"by", round.id.by},
                    {"nodes", round.nodes},
                    {"was_in", round.was_in}});
  }
  return json;
}

std::vector<Unsettled> read_after(Reader& reader) {
  std::vector<Unsettled> after;
  if (!reader.has("after")) return after;
  for (const Json& each : reader.array("after")) {
    if (after.size() >= kMaxUnsettled) {
      reader.wrong("after", "too many");
      break;
    }
    Reader part(each);
    after.push_back({.id = {.number = part.round("round"), .by = part.name("by")},
                     .nodes = part.integer("nodes", 0),
                     .was_in = part.flag("was_in")});
    reader.include(part);
  }
  return after;
}

Json to_json(const Died& died) {
  Json json = {{"node", died.name},
               {"knows_round", died.knows.number},
               {"knows_by", died.knows.by},
               {"knows_nodes", died.nodes}};
  if (!died.after.empty()) json["after"] = to_json(died.after);
  if (!died.seen_of.empty()) json["seen_of"] = died.seen_of;
  return json;
}

std::vector<Died> read_died(Reader& reader) {
  std::vector<Died> all;
  for (const Json& each : reader.array("died")) {
    if (all.size() >= kMaxDied) {
      reader.wrong("died", "too many");
      break;
    }
    Reader part(each);
    all.push_back({.name = part.name("node"),
                   .knows = {.number = part.round("knows_round"), .by = part.name("knows_by")},
                   .nodes = part.integer("knows_nodes", 0),
                   .after = read_after(part),
                   .seen_of = part.has("seen_of") ? part.name("seen_of") : ""});
    reader.include(part);
  }
  return all;
}

// Not by an initializer list, which copies each value twice: this and a round are what each node of
// a large run sends and gets.
Json to_json(const request::Join& join) {
  Json json;
  json["type"] = "join";
  json["host"] = join.host;
  json["address"] = join.address;
  json["pid"] = join.pid;
  json["workers"] = join.participant.local_world_size;
  json["role"] = join.participant.role;
  json["min_nodes"] = join.settings.min_nodes;
  json["max_nodes"] = join.settings.max_nodes;
  json["max_restarts"] = join.policy.max_restarts;
  json["join_timeout_ms"] = milliseconds(join.policy.join_timeout);
  json["last_call_ms"] = milliseconds(join.policy.last_call_timeout);
  json["heartbeat_ms"] = milliseconds(join.policy.keep_alive_interval);
  json["max_missed"] = join.policy.keep_alive_max_attempt;
  json["lease_grace_ms"] = milliseconds(join.policy.lease_grace);
  json["flap_limit"] = join.policy.flap_limit;
  json["store_port"] = join.store_port;
  json["restart_count"] = join.restart_count;
  json["next_round"] = join.next_round;
  json["previous_nodes"] = join.previous_nodes;
  if (join.policy.quorum > 0) json["quorum"] = join.policy.quorum;
  if (join.is_back) json["is_back"] = true;
  if (join.was_in_round) json["was_in_round"] = true;
  if (!join.run_uuid.empty()) json["run_uuid"] = join.run_uuid;
  if (!join.preflight_failure.empty()) json["preflight_failure"] = join.preflight_failure;
  if (join.settings.master) json["master"] = to_json(*join.settings.master);
  for (const Endpoint& each : join.settings.endpoints) json["endpoints"].push_back(to_json(each));
  if (join.endpoint > 0) json["endpoint"] = join.endpoint;
  if (join.node_rank) json["node_rank"] = *join.node_rank;
  if (join.previous_rank) json["previous_rank"] = *join.previous_rank;
  if (join.stand_in_port != 0) json["stand_in_port"] = join.stand_in_port;
  if (join.is_host) json["is_host"] = true;
  if (!join.round_by.empty()) json["round_by"] = join.round_by;
  if (!join.after.empty()) json["after"] = to_json(join.after);
  if (join.seen_age) json["seen_age_ms"] = milliseconds(*join.seen_age);
  if (!join.seen_of.empty()) json["seen_of"] = join.seen_of;
  if (join.pulse > 0) json["pulse"] = join.pulse;
  if (!join.addresses.empty()) json["addresses"] = join.addresses;
  for (const Died& died : join.died) json["died"].push_back(to_json(died));
  return json;
}

std::vector<std::string> read_addresses(Reader& reader, const char* name, std::size_t most) {
  constexpr std::size_t kLongest = 64;
  std::vector<std::string> addresses;
  for (const Json& address : reader.array(name)) {
    auto text = address.is_string() ? address.get<std::string>() : std::string();
    if (addresses.size() == most || text.size() > kLongest || !is_address_of_machine(text)) {
      reader.wrong(name, "no list of addresses of machines");
      return {};
    }
    addresses.push_back(std::move(text));
  }
  return addresses;
}

// Of what a node says in words that are kept for as long as it is here.
std::string read_words(Reader& reader, const char* name) {
  constexpr std::size_t kMostBytes = 4096;
  return std::string(beginning_of(reader.text(name), kMostBytes));
}

void read_endpoints(Reader& reader, request::Join& join) {
  for (const Json& each : reader.array("endpoints")) {
    Reader part(each);
    join.settings.endpoints.push_back({.host = part.name("host"), .port = part.port("port")});
    reader.include(part);
    if (join.settings.endpoints.size() > kMaxEndpoints) break;
  }
  std::size_t count = join.settings.endpoints.size();
  if (count < 2 || count > kMaxEndpoints) {
    reader.wrong("endpoints", "not 2 to " + std::to_string(kMaxEndpoints) + " of them");
    return;
  }
  if (reader.has("endpoint")) {
    join.endpoint =
        static_cast<std::size_t>(reader.integer("endpoint", 0, static_cast<int>(count) - 1));
  }
}

request::Join read_join(Reader& reader) {
  request::Join join;
  join.host = reader.name("host");
  join.address = reader.name("address");
  join.pid = reader.integer("pid", 0, std::numeric_limits<int>::max());
  join.participant = {.local_world_size = reader.integer("workers", 1, 65536),
                      .role = reader.text("role", kMaxNameBytes)};
  join.settings.min_nodes = reader.integer("min_nodes", 1);
  join.settings.max_nodes = reader.integer("max_nodes", 1);
  if (join.settings.min_nodes > join.settings.max_nodes) {
    reader.wrong("min_nodes", "more than max_nodes");
  }
  if (reader.has("master")) join.settings.master = read_endpoint(reader, "master");
  if (reader.has("endpoints")) read_endpoints(reader, join);
  join.policy = {.max_restarts = reader.integer("max_restarts", 0, std::numeric_limits<int>::max()),
                 .join_timeout = reader.duration("join_timeout_ms"),
                 .last_call_timeout = reader.duration("last_call_ms"),
                 .keep_alive_interval = reader.period("heartbeat_ms"),
                 .keep_alive_max_attempt = reader.integer("max_missed", 1, kMaxPeriods),
                 .lease_grace = reader.duration("lease_grace_ms"),
                 .flap_limit = reader.integer("flap_limit", 0)};
  if (reader.has("quorum")) join.policy.quorum = reader.integer("quorum", 0);
  join.store_port = reader.port("store_port");
  join.restart_count = reader.integer("restart_count", 0, std::numeric_limits<int>::max());
  join.next_round = reader.next_round("next_round");
  if (reader.has("is_back")) join.is_back = reader.flag("is_back");
  if (reader.has("was_in_round")) join.was_in_round = reader.flag("was_in_round");
  if (reader.has("run_uuid")) join.run_uuid = reader.name("run_uuid");
  if (reader.has("preflight_failure"))
    join.preflight_failure = read_words(reader, "preflight_failure");
  if (reader.has("previous_nodes")) join.previous_nodes = reader.integer("previous_nodes", 0);
  if (reader.has("node_rank")) join.node_rank = reader.integer("node_rank", 0);
  if (reader.has("previous_rank")) join.previous_rank = reader.integer("previous_rank", 0);
  if (reader.has("stand_in_port")) join.stand_in_port = reader.port("stand_in_port");
  if (reader.has("is_host")) join.is_host = reader.flag("is_host");
  if (reader.has("round_by")) join.round_by = reader.name("round_by");
  join.after = read_after(reader);
  if (reader.has("seen_age_ms")) join.seen_age = reader.duration("seen_age_ms");
  if (reader.has("seen_of")) join.seen_of = reader.name("seen_of");
  if (reader.has("pulse")) join.pulse = reader.number("pulse", 0, kMaxPulse);
  if (reader.has("addresses")) join.addresses = read_addresses(reader, "addresses", kMaxAddresses);
  if (reader.has("died")) join.died = read_died(reader);
  return join;
}

Json to_json(const request::Failed& failed) {
  Json json = {{"type", "failed"},
               {"round", failed.round},
               {"failure", to_json(failed.failure)},
               {"final", failed.is_final}};
  if (failed.wait) json["wait"] = to_json(*failed.wait);
  return json;
}

request::Failed read_failed(Reader& reader) {
  request::Failed failed{.round = reader.round("round"),
                         .failure = read_failure(reader, reader.object("failure")),
                         .is_final = reader.flag("final")};
  if (reader.has("wait")) failed.wait = read_wait(reader, reader.object("wait"));
  return failed;
}

Json to_json(const request::Found& found) {
  Json json = to_json(found.findings);
  json["type"] = "found";
  json["round"] = found.round;
  return json;
}

constexpr const char* kWorkers[] = {"down", "up", "stopping", "succeeded"};

Json to_json(const request::Resume& resume) {
  Json json = to_json(resume.join);
  json["type"] = "resume";
  json["state"] = kWorkers[static_cast<std::size_t>(resume.workers)];
  if (resume.failed) json["failed"] = to_json(*resume.failed);
  return json;
}

request::Resume read_resume(Reader& reader) {
  request::Resume resume{.join = read_join(reader)};
  std::string state = reader.name("state");
  const auto* known = std::ranges::find(kWorkers, state);
  if (known == std::end(kWorkers)) {
    reader.wrong("state", "none of this protocol's");
  } else {
    resume.workers = static_cast<Workers>(known - kWorkers);
  }
  if (reader.has("failed")) {
    Reader failed(reader.object("failed"));
    resume.failed = read_failed(failed);
    reader.include(failed);
  }
  return resume;
}

// What stopped a node; an older agent does not say.
int read_signal(Reader& reader) {
  return reader.has("signal") ? reader.integer("signal", 0, 128) : 0;
}

Json to_json(const Request& request) {
  return std::visit(Overloaded{
                        [](const request::Join& join) { return to_json(join); },
                        [](const request::Ready& ready) {
                          return Json{{"type", "ready"},
                                      {"round", ready.round},
                                      {"store_port", ready.store_port}};
                        },
                        [](const request::Failed& failed) { return to_json(failed); },
                        [](const request::Found& found) { return to_json(found); },
                        [](const request::Succeeded& succeeded) {
                          return Json{{"type", "succeeded"}, {"round", succeeded.round}};
                        },
                        [](const request::Leaving& leaving) {
                          return Json{{"type", "leaving"},
                                      {"why", leaving.why},
                                      {"signal", leaving.signal},
                                      {"grace_ms", milliseconds(leaving.grace)}};
                        },
                        [](const request::Left& left) {
                          Json json{{"type", "left"}, {"why", left.why}};
                          if (left.round) json["round"] = *left.round;
                          if (!left.knows.by.empty()) {
                            json["knows_round"] = left.knows.number;
                            json["knows_by"] = left.knows.by;
                            json["knows_nodes"] = left.nodes;
                            if (!left.after.empty()) json["after"] = to_json(left.after);
                          }
                          if (left.seen_age) json["seen_age_ms"] = milliseconds(*left.seen_age);
                          if (!left.seen_of.empty()) json["seen_of"] = left.seen_of;
                          return json;
                        },
                        [](const request::Resume& resume) { return to_json(resume); },
                        [](const request::Heartbeat& heartbeat) {
                          Json json{{"type", "heartbeat"}};
                          if (heartbeat.pulse > 0) json["pulse"] = heartbeat.pulse;
                          if (heartbeat.round) json["round"] = *heartbeat.round;
                          return json;
                        },
                        [](const request::Lost&) {
                          return Json{{"type", "lost"}};
                        },
                        [](const request::Knock& knock) {
                          Json json{{"type", "knock"},         {"from", to_json(knock.from)},
                                    {"to", to_json(knock.to)}, {"has_round", knock.has_round},
                                    {"formed", knock.formed},  {"order", knock.order}};
                          if (!knock.run_uuid.empty()) json["run_uuid"] = knock.run_uuid;
                          if (knock.is_over) json["is_over"] = true;
                          if (knock.begins) json["begins"] = true;
                          return json;
                        },
                        [](const request::Foreign&) {
                          return Json{{"type", "foreign"}};
                        },
                    },
                    request);
}

Request read_request(Reader& reader) {
  std::string type = reader.name("type");
  if (type == "join") return read_join(reader);
  if (type == "ready") {
    return request::Ready{.round = reader.round("round"), .store_port = reader.port("store_port")};
  }
  if (type == "failed") return read_failed(reader);
  if (type == "found")
    return request::Found{.round = reader.round("round"), .findings = read_findings(reader)};
  if (type == "succeeded") return request::Succeeded{.round = reader.round("round")};
  if (type == "leaving") {
    return request::Leaving{.why = read_words(reader, "why"),
                            .signal = read_signal(reader),
                            .grace = reader.duration("grace_ms")};
  }
  if (type == "left") {
    request::Left left{.why = read_words(reader, "why")};
    if (reader.has("round")) left.round = reader.round("round");
    if (reader.has("knows_by")) {
      left.knows = {.number = reader.round("knows_round"), .by = reader.name("knows_by")};
      left.nodes = reader.integer("knows_nodes", 0);
      left.after = read_after(reader);
    }
    if (reader.has("seen_age_ms")) left.seen_age = reader.duration("seen_age_ms");
    if (reader.has("seen_of")) left.seen_of = reader.name("seen_of");
    return left;
  }
  if (type == "resume") return read_resume(reader);
  if (type == "heartbeat") {
    request::Heartbeat heartbeat;
    if (reader.has("pulse")) heartbeat.pulse = reader.number("pulse", 0, kMaxPulse);
    if (reader.has("round")) heartbeat.round = reader.round("round");
    return heartbeat;
  }
  if (type == "lost") return request::Lost{};
  if (type == "knock") {
    request::Knock knock{.from = read_endpoint(reader, "from"),
                         .to = read_endpoint(reader, "to"),
                         .has_round = reader.flag("has_round"),
                         .formed = reader.round("formed"),
                         .order = reader.round("order")};
    if (reader.has("run_uuid")) knock.run_uuid = reader.name("run_uuid");
    if (reader.has("is_over")) knock.is_over = reader.flag("is_over");
    if (reader.has("begins")) knock.begins = reader.flag("begins");
    return knock;
  }
  reader.wrong("type", "none of this protocol's: '" + type + "'");
  return request::Heartbeat{};
}

constexpr const char* kCauseNames[] = {"failed", "lost", "joined"};

Json to_json(const command::Round& round) {
  Json json;
  json["type"] = "round";
  json["round"] = round.number;
  json["run_uuid"] = round.run_uuid;
  json["restart_count"] = round.restart_count;
  json["max_restarts"] = round.max_restarts;
  json["group_rank"] = round.ranks.group_rank;
  json["group_world_size"] = round.ranks.group_world_size;
  json["base_rank"] = round.ranks.base_rank;
  json["world_size"] = round.ranks.world_size;
  json["role_base_rank"] = round.ranks.role_base_rank;
  json["role_world_size"] = round.ranks.role_world_size;
  json["master"] = to_json(round.master);
  if (round.peers) json["peers"] = *round.peers;
  if (!round.by.empty()) json["by"] = round.by;
  if (!round.after.empty()) json["after"] = to_json(round.after);
  for (const StandIn& stand_in : round.stand_ins) {
    json["stand_ins"].push_back({{"name", stand_in.name}, {"at", to_json(stand_in.at)}});
  }
  return json;
}

std::vector<StandIn> read_stand_ins(Reader& reader) {
  std::vector<StandIn> stand_ins;
  for (const Json& each : reader.array("stand_ins")) {
    if (stand_ins.size() >= kMaxStandIns) {
      reader.wrong("stand_ins", "too many");
      break;
    }
    Reader part(each);
    stand_ins.push_back({.name = part.name("name"), .at = read_endpoint(part, "at")});
    reader.include(part);
  }
  return stand_ins;
}

command::Round read_round(Reader& reader) {
  constexpr int kMaxRank = std::numeric_limits<int>::max();
  command::Round round{.number = reader.round("round"),
                       .run_uuid = reader.text("run_uuid", kMaxNameBytes),
                       .restart_count = reader.integer("restart_count", 0, kMaxRank),
                       .max_restarts = reader.integer("max_restarts", 0, kMaxRank),
                       .ranks = {.group_rank = reader.integer("group_rank", 0),
                                 .group_world_size = reader.integer("group_world_size", 1),
                                 .base_rank = reader.integer("base_rank", 0, kMaxRank),
                                 .world_size = reader.integer("world_size", 1, kMaxRank),
                                 .role_base_rank = reader.integer("role_base_rank", 0, kMaxRank),
                                 .role_world_size = reader.integer("role_world_size", 1, kMaxRank)},
                       .master = read_endpoint(reader, "master")};
  if (reader.has("peers"))
    round.peers = read_addresses(reader, "peers", std::numeric_limits<std::size_t>::max());
  if (reader.has("by")) round.by = reader.name("by");
  if (reader.has("stand_ins")) round.stand_ins = read_stand_ins(reader);
  round.after = read_after(reader);
  return round;
}

Json to_json(const command::Stop& stop) {
  Json json = {{"type", "stop"},
               {"round", stop.round},
               {"cause", kCauseNames[static_cast<std::size_t>(stop.cause)]},
               {"why", stop.why},
               {"signal", stop.signal},
               {"restart_count", stop.restart_count},
               {"max_restarts", stop.max_restarts}};
  if (stop.failure) json["failure"] = to_json(*stop.failure);
  return json;
}

command::Stop read_stop(Reader& reader) {
  command::Stop stop{
      .round = reader.round("round"), .why = reader.text("why"), .signal = read_signal(reader)};
  std::string cause = reader.name("cause");
  bool is_known = false;
  for (std::size_t i = 0; i < std::size(kCauseNames); ++i) {
    if (cause != kCauseNames[i]) continue;
    stop.cause = static_cast<StopCause>(i);
    is_known = true;
  }
  if (!is_known) reader.wrong("cause", "none of this protocol's");
  if (reader.has("failure")) stop.failure = read_failure(reader, reader.object("failure"));
  stop.restart_count = reader.integer("restart_count", 0, std::numeric_limits<int>::max());
  stop.max_restarts = reader.integer("max_restarts", 0, std::numeric_limits<int>::max());
  return stop;
}

// Of many failures the last ones, as far as they fit.
Json to_json(const command::End& end) {
  std::vector<Json> fitting;
  std::size_t bytes = end.why.size();
  for (auto failure = end.failures.rbegin(); failure != end.failures.rend(); ++failure) {
    Json json = to_json(*failure);
    bytes += written(json).size() + 1;
    if (bytes > kMaxEndBytes) break;
    fitting.push_back(std::move(json));
  }
  Json failures = Json::array();
  for (auto json = fitting.rbegin(); json != fitting.rend(); ++json) {
    failures.push_back(std::move(*json));
  }
  Json json = {{"type", "end"},
               {"exit_code", end.exit_code},
               {"why", end.why},
               {"signal", end.signal},
               {"failures", std::move(failures)},
               {"restart_count", end.restart_count},
               {"max_restarts", end.max_restarts}};
  if (!end.slowest.empty()) json["slowest"] = shortened(end.slowest, kMaxDoingCost * 2);
  return json;
}

command::End read_end(Reader& reader) {
  command::End end{.exit_code = reader.integer("exit_code", 0, 255),
                   .why = reader.text("why"),
                   .signal = read_signal(reader)};
  for (const Json& failure : reader.array("failures")) {
    end.failures.push_back(read_failure(reader, failure));
  }
  end.restart_count = reader.integer("restart_count", 0, std::numeric_limits<int>::max());
  end.max_restarts = reader.integer("max_restarts", 0, std::numeric_limits<int>::max());
  if (reader.has("slowest")) end.slowest = reader.text("slowest");
  return end;
}

Command read_command(Reader& reader) {
  std::string type = reader.name("type");
  if (type == "round") return read_round(reader);
  if (type == "inspect") {
    return command::Inspect{.round = reader.round("round"),
                            .in = reader.text("in", kMaxNameBytes),
                            .why = reader.text("why")};
  }
  if (type == "take_stacks") {
    command::TakeStacks take{.round = reader.round("round"), .number = reader.round("number")};
    if (reader.has("rank")) take.rank = reader.integer("rank", 0);
    return take;
  }
  if (type == "stop") return read_stop(reader);
  if (type == "waiting") return command::Waiting{.why = reader.text("why")};
  if (type == "end") return read_end(reader);
  if (type == "refuse") return command::Refuse{.why = reader.text("why")};
  if (type == "standby") return command::Standby{.why = reader.text("why")};
  if (type == "info") return command::Info{.text = reader.text("text")};
  if (type == "keep_alive") {
    return command::KeepAlive{
        .keep_alive_interval = reader.period("heartbeat_ms"),
        .keep_alive_max_attempt = reader.integer("max_missed", 1, kMaxPeriods),
        .lease_grace = reader.duration("lease_grace_ms"),
        .text = reader.text("text")};
  }
  if (type == "continue") return command::Continue{};
  if (type == "dropped") return command::Dropped{.why = reader.text("why")};
  if (type == "moved") {
    return command::Moved{.to = read_endpoint(reader, "to"), .why = reader.text("why")};
  }
  if (type == "settled") {
    return command::Settled{{.number = reader.round("round"), .by = reader.name("by")}};
  }
  reader.wrong("type", "none of this protocol's: '" + type + "'");
  return command::Info{};
}

// Reads the object and the version that it is written in.
Result<std::pair<Json, int>> parse(std::string_view text, std::size_t max_bytes) {
  if (text.size() > max_bytes) {
    return Error{Errc::Protocol, "a message of " + std::to_string(text.size()) + " bytes"};
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Error{Errc::Protocol, "a message that is no JSON object"};
  Reader reader(json);
  int version = reader.integer("v", 0);
  if (!reader.problem().empty()) return Error{Errc::Protocol, reader.problem()};
  return std::pair(std::move(json), version);
}

}  // namespace

std::string encode(const Message& message) {
  Json json = to_json(message.request);
  json["v"] = kProtocolVersion;
  json["run"] = message.run;
  json["node"] = message.node;
  json["connection"] = message.connection;
  return written(json);
}

std::string encode(const Command& command) {
  Json json = std::visit(
      Overloaded{
          [](const command::Round& round) { return to_json(round); },
          [](const command::Inspect& inspect) {
            return Json{{"type", "inspect"},
                        {"round", inspect.round},
                        {"in", inspect.in},
                        {"why", inspect.why}};
          },
          [](const command::TakeStacks& take) {
            Json fields{{"type", "take_stacks"}, {"round", take.round}, {"number", take.number}};
            if (take.rank) fields["rank"] = *take.rank;
            return fields;
          },
          [](const command::Stop& stop) { return to_json(stop); },
          [](const command::Waiting& waiting) {
            return Json{{"type", "waiting"}, {"why", waiting.why}};
          },
          [](const command::End& end) { return to_json(end); },
          [](const command::Refuse& refuse) {
            return Json{{"type", "refuse"}, {"why", refuse.why}};
          },
          [](const command::Standby& standby) {
            return Json{{"type", "standby"}, {"why", standby.why}};
          },
          [](const command::Info& info) {
            return Json{{"type", "info"}, {"text", info.text}};
          },
          [](const command::KeepAlive& keep_alive) {
            return Json{{"type", "keep_alive"},
                        {"heartbeat_ms", milliseconds(keep_alive.keep_alive_interval)},
                        {"max_missed", keep_alive.keep_alive_max_attempt},
                        {"lease_grace_ms", milliseconds(keep_alive.lease_grace)},
                        {"text", keep_alive.text}};
          },
          [](const command::Continue&) {
            return Json{{"type", "continue"}};
          },
          [](const command::Dropped& dropped) {
            return Json{{"type", "dropped"}, {"why", dropped.why}};
          },
          [](const command::Moved& moved) {
            return Json{{"type", "moved"}, {"to", to_json(moved.to)}, {"why", moved.why}};
          },
          [](const command::Settled& settled) {
            return Json{
                {"type", "settled"}, {"round", settled.round.number}, {"by", settled.round.by}};
          },
      },
      command);
  json["v"] = kProtocolVersion;
  return written(json);
}

Result<Message> decode_message(std::string_view text) {
  auto parsed = parse(text, kMaxMessageBytes);
  if (!parsed) return parsed.error();
  auto& [json, version] = *parsed;
  Reader reader(json);
  Message message{.run = reader.name("run"), .node = reader.name("node"), .request = {}};
  message.request =
      version == kProtocolVersion ? read_request(reader) : request::Foreign{.version = version};
  if (reader.has("connection")) message.connection = reader.round("connection");
  if (!reader.problem().empty()) return Error{Errc::Protocol, reader.problem()};
  return message;
}

bool has_same_lease(const Policy& one, const Policy& other) {
  return one.keep_alive_interval == other.keep_alive_interval &&
         one.keep_alive_max_attempt == other.keep_alive_max_attempt &&
         one.lease_grace == other.lease_grace;
}

void take_lease(Policy& policy, const Policy& from) {
  policy.keep_alive_interval = from.keep_alive_interval;
  policy.keep_alive_max_attempt = from.keep_alive_max_attempt;
  policy.lease_grace = from.lease_grace;
}

command::KeepAlive keep_alive_of(const Policy& policy, std::string text) {
  return {.keep_alive_interval = policy.keep_alive_interval,
          .keep_alive_max_attempt = policy.keep_alive_max_attempt,
          .lease_grace = policy.lease_grace,
          .text = std::move(text)};
}

std::optional<Sender> decode_sender(std::string_view text) {
  auto parsed = parse(text, kMaxMessageBytes);
  if (!parsed) return std::nullopt;
  Reader reader(parsed->first);
  Sender sender{.run = reader.name("run"), .node = reader.name("node")};
  if (reader.has("connection")) sender.connection = reader.round("connection");
  if (!reader.problem().empty()) return std::nullopt;
  return sender;
}

Result<Command> decode_command(std::string_view text) {
  auto parsed = parse(text, kMaxCommandBytes);
  if (!parsed) return parsed.error();
  auto& [json, version] = *parsed;
  if (version != kProtocolVersion) {
    return Error{Errc::Protocol, "version " + std::to_string(version) +
                                     " of the rendezvous protocol, where version " +
                                     std::to_string(kProtocolVersion) + " is spoken"};
  }
  Reader reader(json);
  Command command = read_command(reader);
  if (!reader.problem().empty()) return Error{Errc::Protocol, reader.problem()};
  return command;
}

}  // namespace ddprun::rendezvous
