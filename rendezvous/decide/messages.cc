// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/messages.h"

#include <utility>

#include "rendezvous/decide/command_json.h"
#include "rendezvous/decide/fields.h"
#include "rendezvous/decide/request_json.h"

namespace ddprun::rendezvous {
namespace {

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
  Json json = to_json(command);
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
  if (reader.has("connection")) message.connection = reader.whole("connection");
  if (!reader.problem().empty()) return Error{Errc::Protocol, reader.problem()};
  return message;
}

std::optional<Sender> decode_sender(std::string_view text) {
  auto parsed = parse(text, kMaxMessageBytes);
  if (!parsed) return std::nullopt;
  Reader reader(parsed->first);
  Sender sender{.run = reader.name("run"), .node = reader.name("node")};
  if (reader.has("connection")) sender.connection = reader.whole("connection");
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

std::string why_of(const command::Stop& stop) {
  return stop.failure ? describe_briefly(*stop.failure) : stop.why;
}

std::string_view word_of(LossKind loss) {
  switch (loss) {
    case LossKind::Other:
      return "";
    case LossKind::Lost:
      return "lost";
    case LossKind::Left:
      return "left";
    case LossKind::CutOff:
      return "cut_off";
    case LossKind::Rendezvous:
      return "rendezvous";
  }
  return "";
}

LossKind loss_of(const request::Left& left) {
  if (left.loss != LossKind::Other) return left.loss;
  return left.why.empty() ? LossKind::Left : LossKind::Lost;
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

}  // namespace ddprun::rendezvous
