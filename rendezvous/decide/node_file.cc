// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/node_file.h"

#include <utility>
#include <variant>

#include "rendezvous/decide/fields.h"
#include "rendezvous/decide/message_parts.h"
#include "rendezvous/decide/node_id.h"

namespace ddprun::rendezvous {
namespace {

std::string encode(const RunPlaces& places) {
  Json at = Json::array();
  for (const StandIn& place : places.at)
    at.push_back({{"name", place.name}, {"at", to_json(place.at)}});
  return written({{"run_uuid", places.run_uuid}, {"places", std::move(at)}});
}

RunPlaces decode_places(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  Reader reader(json);
  RunPlaces places{.run_uuid = reader.name("run_uuid"), .at = {}};
  places.at = reader.list("places", kMaxRunPlaces, [](Reader& part) {
    return StandIn{.name = part.name("name"), .at = read_endpoint(part, "at")};
  });
  return reader.problem().empty() ? places : RunPlaces{};
}

}  // namespace

// A line for the machine, one with what the node would say at its end, and one for the places.
std::string encode(const NodeFile& file) {
  request::Left left{.knows = file.node.knows,
                     .nodes = file.node.nodes,
                     .after = file.node.after,
                     .seen_of = file.node.seen_of};
  Message message{.run = file.run, .node = file.node.name + ".0", .request = std::move(left)};
  std::string text = file.boot + "\n" + encode(message) + "\n";
  if (!file.places.at.empty()) text += encode(file.places) + "\n";
  return text;
}

Result<NodeFile> decode_node_file(std::string_view text) {
  std::size_t end = text.find('\n');
  std::size_t last = end == std::string_view::npos ? end : text.find('\n', end + 1);
  if (last == std::string_view::npos) return Error{Errc::Protocol, "it has not two lines"};
  auto message = decode_message(text.substr(end + 1, last - end - 1));
  if (!message) return message.error();
  auto* left = std::get_if<request::Left>(&message->request);
  RunPlaces places = decode_places(text.substr(last + 1));
  if (left == nullptr || (left->knows.by.empty() && places.at.empty()))
    return Error{Errc::Protocol, "it does not say what the node knew"};
  return NodeFile{.boot = std::string(text.substr(0, end)),
                  .run = std::move(message->run),
                  .node = {.name = coordinator::name_of(message->node),
                           .knows = std::move(left->knows),
                           .nodes = left->nodes,
                           .after = std::move(left->after),
                           .seen_of = std::move(left->seen_of)},
                  .places = std::move(places)};
}

}  // namespace ddprun::rendezvous
