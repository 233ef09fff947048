// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/request_json.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/decide/failure_json.h"
#include "rendezvous/decide/message_parts.h"
#include "store/base/text.h"
#include "store/base/variant.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::int64_t kMaxPulse = std::int64_t{1} << 60U;

Json fields_of(const Died& died) {
  Json json = {{"node", died.name},
               {"knows_round", died.knows.number},
               {"knows_by", died.knows.by},
               {"knows_nodes", died.nodes}};
  if (!died.after.empty()) json["after"] = to_json(died.after);
  if (!died.seen_of.empty()) json["seen_of"] = died.seen_of;
  if (!died.left.empty()) json["left"] = died.left;
  return json;
}

Json list_of(const std::vector<Died>& all) {
  Json json = Json::array();
  for (const Died& died : all) json.push_back(fields_of(died));
  return json;
}

std::vector<Died> read_died(Reader& reader) {
  return reader.list("died", kMaxDied, [](Reader& part) {
    return Died{.name = part.name("node"),
                .knows = {.number = part.round("knows_round"), .by = part.name("knows_by")},
                .nodes = part.integer("knows_nodes", 0),
                .after = read_after(part),
                .seen_of = part.has("seen_of") ? part.name("seen_of") : "",
                .left = part.has("left") ? part.text("left", kMaxNameBytes) : ""};
  });
}

// Not by an initializer list, which copies each value twice: this and a round are what each node of
// a large run sends and gets.
Json fields_of(const request::Join& join) {
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
  if (!join.looks_for.empty()) json["looks_for"] = join.looks_for;
  if (!join.preflight_failure.empty()) json["preflight_failure"] = join.preflight_failure;
  if (join.settings.master) json["master"] = to_json(*join.settings.master);
  for (const Endpoint& each : join.settings.endpoints) json["endpoints"].push_back(to_json(each));
  if (join.endpoint > 0) json["endpoint"] = join.endpoint;
  if (join.unreached > 0) json["unreached"] = join.unreached;
  if (join.node_rank) json["node_rank"] = *join.node_rank;
  if (join.previous_rank) json["previous_rank"] = *join.previous_rank;
  if (join.stand_in_port != 0) json["stand_in_port"] = join.stand_in_port;
  if (join.is_host) json["is_host"] = true;
  if (!join.round_by.empty()) json["round_by"] = join.round_by;
  if (!join.after.empty()) json["after"] = to_json(join.after);
  if (join.seen_age) json["seen_age_ms"] = milliseconds(*join.seen_age);
  if (!join.seen_of.empty()) json["seen_of"] = join.seen_of;
  if (!join.addresses.empty()) json["addresses"] = join.addresses;
  if (!join.died.empty()) json["died"] = list_of(join.died);
  if (join.gives_bundle) json["gives_bundle"] = true;
  if (join.says_up) json["says_up"] = true;
  return json;
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
  if (reader.has("unreached"))
    join.unreached = static_cast<unsigned>(reader.integer("unreached", 0, (1 << count) - 1));
}

request::Join read_join(Reader& reader) {
  request::Join join;
  join.host = reader.name("host");
  join.address = reader.name("address");
  join.pid = reader.integer("pid", 0, std::numeric_limits<int>::max());
  join.participant = {.local_world_size = reader.integer("workers", 1, kMaxLocalWorkers),
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
  if (reader.has("looks_for")) join.looks_for = reader.name("looks_for");
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
  if (reader.has("addresses")) join.addresses = read_addresses(reader, "addresses", kMaxAddresses);
  if (reader.has("died")) join.died = read_died(reader);
  if (reader.has("gives_bundle")) join.gives_bundle = reader.flag("gives_bundle");
  if (reader.has("says_up")) join.says_up = reader.flag("says_up");
  return join;
}

Json fields_of(const request::Failed& failed) {
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

Json fields_of(const request::Found& found) {
  Json json = to_json(found.findings);
  json["type"] = "found";
  json["round"] = found.round;
  return json;
}

Json fields_of(const request::Leaving& leaving) {
  return {
      {"why", leaving.why}, {"signal", leaving.signal}, {"grace_ms", milliseconds(leaving.grace)}};
}

request::Leaving read_leaving(Reader& reader) {
  return {.why = read_words(reader, "why"),
          .signal = read_signal(reader),
          .grace = reader.duration("grace_ms")};
}

constexpr const char* kWorkers[] = {"down", "up", "stopping", "succeeded"};

Json fields_of(const request::Resume& resume) {
  Json json = fields_of(resume.join);
  json["type"] = "resume";
  json["state"] = kWorkers[static_cast<std::size_t>(resume.workers)];
  if (resume.failed) json["failed"] = fields_of(*resume.failed);
  if (resume.leaving) json["leaving"] = fields_of(*resume.leaving);
  if (!resume.why.empty()) json["why"] = resume.why;
  put_loss(json, resume.loss);
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
  if (reader.has("leaving")) {
    Reader leaving(reader.object("leaving"));
    resume.leaving = read_leaving(leaving);
    reader.include(leaving);
  }
  if (reader.has("why")) resume.why = read_words(reader, "why");
  resume.loss = read_loss(reader);
  return resume;
}

}  // namespace

Json to_json(const Request& request) {
  return std::visit(Overloaded{
                        [](const request::Join& join) { return fields_of(join); },
                        [](const request::Ready& ready) {
                          return Json{{"type", "ready"},
                                      {"round", ready.round},
                                      {"store_port", ready.store_port}};
                        },
                        [](const request::Failed& failed) { return fields_of(failed); },
                        [](const request::Found& found) { return fields_of(found); },
                        [](const request::Succeeded& succeeded) {
                          return Json{{"type", "succeeded"}, {"round", succeeded.round}};
                        },
                        [](const request::Leaving& leaving) {
                          Json json = fields_of(leaving);
                          json["type"] = "leaving";
                          return json;
                        },
                        [](const request::Left& left) {
                          Json json{{"type", "left"}, {"why", left.why}};
                          put_loss(json, left.loss);
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
                        [](const request::Resume& resume) { return fields_of(resume); },
                        [](const request::Heartbeat& heartbeat) {
                          Json json{{"type", "heartbeat"}};
                          if (heartbeat.pulse > 0) json["pulse"] = heartbeat.pulse;
                          if (heartbeat.round) json["round"] = *heartbeat.round;
                          if (heartbeat.heard) json["heard"] = *heartbeat.heard;
                          if (heartbeat.died) json["died"] = list_of(*heartbeat.died);
                          if (heartbeat.up) json["up"] = *heartbeat.up;
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
                          if (knock.asks) json["asks"] = true;
                          if (knock.is_over) json["is_over"] = true;
                          if (knock.begins) json["begins"] = true;
                          if (!knock.lacks.by.empty()) {
                            json["lacks_round"] = knock.lacks.number;
                            json["lacks_by"] = knock.lacks.by;
                            json["here"] = knock.here;
                          }
                          if (knock.stuck > 0) json["stuck"] = knock.stuck;
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
  if (type == "leaving") return read_leaving(reader);
  if (type == "left") {
    request::Left left{.why = read_words(reader, "why"), .loss = read_loss(reader)};
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
    if (reader.has("heard")) heartbeat.heard = reader.whole("heard");
    if (reader.has("died")) heartbeat.died = read_died(reader);
    if (reader.has("up")) heartbeat.up = reader.round("up");
    return heartbeat;
  }
  if (type == "lost") return request::Lost{};
  if (type == "knock") {
    request::Knock knock{.from = read_endpoint(reader, "from"),
                         .to = read_endpoint(reader, "to"),
                         .has_round = reader.flag("has_round"),
                         .formed = reader.round("formed"),
                         .order = reader.whole("order")};
    if (reader.has("run_uuid")) knock.run_uuid = reader.name("run_uuid");
    if (reader.has("asks")) knock.asks = reader.flag("asks");
    if (reader.has("is_over")) knock.is_over = reader.flag("is_over");
    if (reader.has("begins")) knock.begins = reader.flag("begins");
    if (reader.has("lacks_by")) {
      knock.lacks = {.number = reader.round("lacks_round"), .by = reader.name("lacks_by")};
      knock.here = reader.integer("here", 0);
    }
    if (reader.has("stuck")) knock.stuck = reader.integer("stuck", 0);
    return knock;
  }
  reader.wrong("type", "none of this protocol's: '" + type + "'");
  return request::Heartbeat{};
}

}  // namespace ddprun::rendezvous
