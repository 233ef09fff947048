// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/message_parts.h"

#include <string>
#include <utility>

#include "store/base/text.h"

namespace ddprun::rendezvous {

Json to_json(const Endpoint& endpoint) {
  return {{"host", endpoint.host}, {"port", endpoint.port}};
}

Endpoint read_endpoint(Reader& parent, const char* name) {
  Reader reader(parent.object(name));
  Endpoint endpoint{.host = reader.name("host"), .port = reader.port("port")};
  parent.include(reader);
  return endpoint;
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
  if (!reader.has("after")) return {};
  return reader.list("after", kMaxUnsettled, [](Reader& part) {
    return Unsettled{.id = {.number = part.round("round"), .by = part.name("by")},
                     .nodes = part.integer("nodes", 0),
                     .was_in = part.flag("was_in")};
  });
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

int read_signal(Reader& reader) {
  return reader.has("signal") ? reader.integer("signal", 0, 128) : 0;
}

void put_loss(Json& json, LossKind loss) {
  if (loss != LossKind::Other) json["loss"] = word_of(loss);
}

LossKind read_loss(Reader& reader) {
  if (!reader.has("loss")) return LossKind::Other;
  const std::string word = reader.name("loss");
  for (LossKind kind : {LossKind::Lost, LossKind::Left, LossKind::CutOff, LossKind::Rendezvous}) {
    if (word == word_of(kind)) return kind;
  }
  return LossKind::Other;
}

}  // namespace ddprun::rendezvous
