// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/host_entry.h"

#include "rendezvous/decide/fields.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kVersion = 1;

}  // namespace

std::string encode(const HostEntry& entry) {
  Json json = {{"v", kVersion},         {"generation", entry.generation},
               {"node", entry.node},    {"host", entry.at.host},
               {"port", entry.at.port}, {"is_over", entry.is_over}};
  if (entry.says_file) json["file"] = entry.file ? Json::parse(encode(*entry.file)) : Json();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<HostEntry> decode_host_entry(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Error{Errc::Protocol, "it is no JSON object"};
  Reader reader(json);
  reader.number("v", kVersion, kVersion);
  HostEntry entry{.generation = reader.whole("generation"),
                  .node = reader.name("node"),
                  .at = {.host = reader.name("host"), .port = reader.port("port")},
                  .is_over = reader.flag("is_over"),
                  .says_file = reader.has("file")};
  if (!reader.problem().empty()) return Error{Errc::Protocol, reader.problem()};
  if (entry.generation == 0) return Error{Errc::Protocol, "field 'generation' is out of range"};
  if (!entry.says_file || json["file"].is_null()) return entry;
  auto file = decode_run_file(json["file"].dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!file) return Error{Errc::Protocol, "field 'file': " + file.error().context};
  entry.file = std::move(*file);
  return entry;
}

}  // namespace ddprun::rendezvous
