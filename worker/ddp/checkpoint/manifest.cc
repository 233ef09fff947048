// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/manifest.h"

#include <nlohmann/json.hpp>

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;

Error damaged(const std::string& sentence) {
  return Error{Errc::Protocol, "manifest: " + sentence};
}

// Names stay inside the folder: a manifest is not trusted to point elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json files = Json::array();
  for (const FileEntry& file : manifest.files) {
    files.push_back(
        {{"name", file.name}, {"size_bytes", file.size_bytes}, {"crc32c", file.crc32c}});
  }
  return Json{{"format", kFormat},
              {"step", manifest.step},
              {"world_size", manifest.world_size},
              {"torch_version", manifest.torch_version},
              {"files", files}}
             .dump(2) +
         "\n";
}

Result<Manifest> parse_manifest(std::string_view text) {
  try {
    Json json = Json::parse(text);
    if (json.at("format").get<int>() != kFormat) {
      return damaged("format " + json["format"].dump() + " is not known here");
    }
    Manifest manifest;
    manifest.step = json.at("step").get<std::int64_t>();
    manifest.world_size = json.at("world_size").get<int>();
    manifest.torch_version = json.at("torch_version").get<std::string>();
    for (const Json& file : json.at("files")) {
      FileEntry entry{.name = file.at("name").get<std::string>(),
                      .size_bytes = file.at("size_bytes").get<std::uint64_t>(),
                      .crc32c = file.at("crc32c").get<std::uint32_t>()};
      if (!is_plain_name(entry.name)) return damaged("'" + entry.name + "' is no plain file name");
      manifest.files.push_back(std::move(entry));
    }
    return manifest;
  } catch (const Json::exception&) {
    return damaged("it is no JSON, or lacks a field");
  }
}

}  // namespace ddprun::ddp
