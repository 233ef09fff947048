// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/command_json.h"

#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/decide/failure_json.h"
#include "rendezvous/decide/message_parts.h"
#include "store/base/variant.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxSlowestCost = 400;                       // as JSON
constexpr std::size_t kMaxEndBytes = kMaxMessageBytes - 4 * 1024;  // for the failures of an End

constexpr const char* kCauseNames[] = {"failed", "lost", "joined"};

Json fields_of(const std::vector<StandIn>& stand_ins) {
  Json json = Json::array();
  for (const StandIn& stand_in : stand_ins)
    json.push_back({{"name", stand_in.name}, {"at", to_json(stand_in.at)}});
  return json;
}

Json fields_of(const command::Round& round) {
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
  if (!round.stand_ins.empty()) json["stand_ins"] = fields_of(round.stand_ins);
  return json;
}

std::vector<StandIn> read_stand_ins(Reader& reader) {
  return reader.list("stand_ins", kMaxStandIns, [](Reader& part) {
    return StandIn{.name = part.name("name"), .at = read_endpoint(part, "at")};
  });
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

Json fields_of(const command::Stop& stop) {
  Json json = {{"type", "stop"},
               {"round", stop.round},
               {"cause", kCauseNames[static_cast<std::size_t>(stop.cause)]},
               {"why", stop.why},
               {"signal", stop.signal},
               {"restart_count", stop.restart_count},
               {"max_restarts", stop.max_restarts}};
  put_loss(json, stop.loss);
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
    stop.cause = static_cast<RoundEndCause>(i);
    is_known = true;
  }
  if (!is_known) reader.wrong("cause", "none of this protocol's");
  stop.loss = read_loss(reader);
  if (reader.has("failure")) stop.failure = read_failure(reader, reader.object("failure"));
  stop.restart_count = reader.integer("restart_count", 0, std::numeric_limits<int>::max());
  stop.max_restarts = reader.integer("max_restarts", 0, std::numeric_limits<int>::max());
  return stop;
}

// Of many failures the last ones, as far as they fit.
Json fields_of(const command::End& end) {
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
  if (!end.slowest.empty()) json["slowest"] = shortened(end.slowest, kMaxSlowestCost);
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

}  // namespace

Json to_json(const Command& command) {
  return std::visit(
      Overloaded{
          [](const command::Round& round) { return fields_of(round); },
          [](const command::Inspect& inspect) {
            return Json{{"type", "inspect"},
                        {"round", inspect.round},
                        {"in", inspect.in},
                        {"is_idle", inspect.is_idle},
                        {"has_lost_peer", inspect.has_lost_peer},
                        {"why", inspect.why}};
          },
          [](const command::TakeStacks& take) {
            Json fields{{"type", "take_stacks"}, {"round", take.round}, {"number", take.number}};
            if (take.rank) fields["rank"] = *take.rank;
            return fields;
          },
          [](const command::TakeBundle& take) {
            return Json{{"type", "take_bundle"},
                        {"number", take.number},
                        {"most_bytes", take.most_bytes},
                        {"piece", take.piece}};
          },
          [](const command::Stop& stop) { return fields_of(stop); },
          [](const command::Waiting& waiting) {
            return Json{{"type", "waiting"}, {"why", waiting.why}};
          },
          [](const command::End& end) { return fields_of(end); },
          [](const command::Refuse& refuse) {
            return Json{{"type", "refuse"}, {"why", refuse.why}};
          },
          [](const command::Standby& standby) {
            Json json{{"type", "standby"}, {"why", standby.why}};
            if (standby.is_outside) json["is_outside"] = true;
            return json;
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
            Json json{{"type", "moved"}, {"to", to_json(moved.to)}, {"why", moved.why}};
            if (moved.is_other_start) json["is_other_start"] = true;
            if (moved.is_unreached) json["is_unreached"] = true;
            return json;
          },
          [](const command::Settled& settled) {
            return Json{
                {"type", "settled"}, {"round", settled.round.number}, {"by", settled.round.by}};
          },
          [](const command::StandIns& told) {
            Json json{{"type", "stand_ins"}, {"stand_ins", fields_of(told.stand_ins)}};
            if (!told.run_uuid.empty()) json["run_uuid"] = told.run_uuid;
            return json;
          },
      },
      command);
}

Command read_command(Reader& reader) {
  std::string type = reader.name("type");
  if (type == "round") return read_round(reader);
  if (type == "inspect") {
    return command::Inspect{
        .round = reader.round("round"),
        .in = reader.text("in", kMaxNameBytes),
        .is_idle = reader.has("is_idle") && reader.flag("is_idle"),
        .has_lost_peer = reader.has("has_lost_peer") && reader.flag("has_lost_peer"),
        .why = reader.text("why")};
  }
  if (type == "take_stacks") {
    command::TakeStacks take{.round = reader.round("round"), .number = reader.whole("number")};
    if (reader.has("rank")) take.rank = reader.integer("rank", 0);
    return take;
  }
  if (type == "take_bundle") {
    return command::TakeBundle{.number = reader.whole("number"),
                               .most_bytes = reader.whole("most_bytes"),
                               .piece = reader.whole("piece")};
  }
  if (type == "stop") return read_stop(reader);
  if (type == "waiting") return command::Waiting{.why = reader.text("why")};
  if (type == "end") return read_end(reader);
  if (type == "refuse") return command::Refuse{.why = reader.text("why")};
  if (type == "standby") {
    command::Standby standby{.why = reader.text("why")};
    if (reader.has("is_outside")) standby.is_outside = reader.flag("is_outside");
    return standby;
  }
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
    command::Moved moved{.to = read_endpoint(reader, "to"), .why = reader.text("why")};
    if (reader.has("is_other_start")) moved.is_other_start = reader.flag("is_other_start");
    if (reader.has("is_unreached")) moved.is_unreached = reader.flag("is_unreached");
    return moved;
  }
  if (type == "settled") {
    return command::Settled{{.number = reader.round("round"), .by = reader.name("by")}};
  }
  if (type == "stand_ins") {
    command::StandIns told{.stand_ins = read_stand_ins(reader)};
    if (reader.has("run_uuid")) told.run_uuid = reader.name("run_uuid");
    return told;
  }
  reader.wrong("type", "none of this protocol's: '" + type + "'");
  return command::Info{};
}

}  // namespace ddprun::rendezvous
