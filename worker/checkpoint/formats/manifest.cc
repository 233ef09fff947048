// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/manifest.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "worker/checkpoint/formats/whole_number.h"

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
  Json json = {{"format", kFormat},
               {"step", manifest.step},
               {"world_size", manifest.world_size},
               {"torch_version", manifest.torch_version},
               {"run_uuid", manifest.generation.run_uuid},
               {"round", manifest.generation.round}};
  if (manifest.metric) json["metric"] = *manifest.metric;
  std::string text = json.dump(2);
  text.resize(text.size() - 2);  // the end of the object, which goes on
  text += ",\n  \"files\": [";
  for (const FileEntry& file : manifest.files) {
    text += &file == &manifest.files.front() ? "\n    " : ",\n    ";
    text += "{\"name\": " + Json(file.name).dump() +
            ", \"size_bytes\": " + std::to_string(file.size_bytes) +
            ", \"crc32c\": " + std::to_string(file.crc32c) + "}";
  }
  return text + "\n  ]\n}\n";
}

Result<Manifest> parse_manifest(std::string_view text) {
  try {
    Json json = Json::parse(text);
    const int format = whole_number<int>(json.at("format"));
    if (format > kFormat) {
      return Error{Errc::NotSupported, "it has format " + std::to_string(format) +
                                           ", of a newer ddprun; this one reads format " +
                                           std::to_string(kFormat)};
    }
    if (format != kFormat) {
      return damaged("format " + std::to_string(format) + " is not known here");
    }
    Manifest manifest;
    manifest.step = whole_number<std::int64_t>(json.at("step"));
    manifest.world_size = whole_number<int>(json.at("world_size"));
    manifest.torch_version = json.at("torch_version").get<std::string>();
    // Those of 0.1.0 before it knew of rounds have neither.
    if (json.contains("run_uuid")) {
      manifest.generation = {.run_uuid = json["run_uuid"].get<std::string>(),
                             .round = whole_number<int>(json.at("round"))};
    }
    if (json.contains("metric")) manifest.metric = json["metric"].get<double>();
    for (const Json& file : json.at("files")) {
      FileEntry entry{.name = file.at("name").get<std::string>(),
                      .size_bytes = whole_number<std::uint64_t>(file.at("size_bytes")),
                      .crc32c = whole_number<std::uint32_t>(file.at("crc32c"))};
      if (!is_plain_name(entry.name)) return damaged("'" + entry.name + "' is no plain file name");
      manifest.files.push_back(std::move(entry));
    }
    return manifest;
  } catch (const Json::exception&) {
    return damaged("it is no JSON, or lacks a field");
  } catch (const std::out_of_range&) {
    return damaged("it has a number that is none, or too large");
  }
}

}  // namespace ddprun::ddp
