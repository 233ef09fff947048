// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/run_file.h"

#include <cstdio>

#include "rendezvous/decide/fields.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kVersion = 1;

}  // namespace

std::string encode(const RunFile& file) {
  auto lease = std::chrono::ceil<std::chrono::milliseconds>(file.lease);
  Json json = {{"v", kVersion},       {"run", file.run},           {"run_uuid", file.run_uuid},
               {"round", file.round}, {"lease_ms", lease.count()}, {"nodes", file.nodes}};
  if (!file.by.empty()) json["by"] = file.by;
  if (!file.left.empty()) json["left"] = file.left;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<RunFile> decode_run_file(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Error{Errc::Protocol, "it is no JSON object"};
  Reader reader(json);
  reader.number("v", kVersion, kVersion);
  RunFile file{.run = reader.text("run"),
               .run_uuid = reader.text("run_uuid"),
               .round = reader.round("round"),
               .lease = reader.duration("lease_ms"),
               .nodes = {},
               .by = reader.has("by") ? reader.name("by") : "",
               .left = {}};
  auto read_names = [&](const char* field, std::set<std::string>& names) {
    for (const Json& node : reader.array(field)) {
      if (node.is_string()) {
        names.insert(node.get<std::string>());
      } else {
        reader.wrong(field, "no list of names");
      }
    }
  };
  read_names("nodes", file.nodes);
  if (reader.has("left")) read_names("left", file.left);
  if (!reader.problem().empty()) return Error{Errc::Protocol, reader.problem()};
  return file;
}

// FNV-1a, the same in every version and on every machine.
std::string run_file_name(std::string_view run) {
  std::uint64_t hash = 14695981039346656037U;
  for (char byte : run) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace ddprun::rendezvous
