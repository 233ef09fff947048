// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/stacks.h"

#include <algorithm>
#include <cstdint>

#include "rendezvous/decide/fields.h"
#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxTools = 8;

Json to_json(const WorkerStack& worker, std::size_t most_frames) {
  Json json = {{"rank", worker.rank}, {"pid", worker.pid}, {"doing", worker.doing}};
  if (!worker.in.empty()) json["in"] = cut(worker.in, kMaxFrameBytes);
  if (!worker.place.empty()) json["place"] = cut(worker.place, kMaxFrameBytes);
  if (!worker.problem.empty()) json["problem"] = cut(worker.problem, kMaxFrameBytes);
  if (worker.waits) json["waits"] = *worker.waits;
  json["frames"] = Json::array();
  for (const std::string& frame : worker.frames) {
    if (json["frames"].size() == most_frames) break;
    json["frames"].push_back(cut(frame, kMaxFrameBytes));
  }
  return json;
}

std::string text_of(const NodeStacks& stacks, std::size_t workers, std::size_t frames) {
  Json json = {{"number", stacks.number}, {"tools", stacks.tools}, {"workers", Json::array()}};
  for (std::size_t i = 0; i < std::min(workers, stacks.workers.size()); ++i)
    json["workers"].push_back(to_json(stacks.workers[i], frames));
  return written(json);
}

std::string read_text(Reader& reader, const char* name) {
  return reader.has(name) ? cut(reader.text(name), kMaxFrameBytes) : "";
}

std::vector<std::string> read_texts(Reader& reader, const char* name, std::size_t most) {
  std::vector<std::string> texts;
  if (!reader.has(name)) return texts;
  for (const Json& each : reader.array(name)) {
    if (texts.size() == most || !each.is_string()) break;
    texts.push_back(cut(printable(each.get_ref<const std::string&>()), kMaxFrameBytes));
  }
  return texts;
}

WorkerStack read_worker(Reader& reader) {
  WorkerStack worker{.rank = reader.integer("rank", 0, INT32_MAX),
                     .pid = reader.integer("pid", 0, INT32_MAX),
                     .in = read_text(reader, "in"),
                     .place = read_text(reader, "place"),
                     .doing = read_text(reader, "doing"),
                     .frames = read_texts(reader, "frames", kMaxFrames),
                     .problem = read_text(reader, "problem")};
  if (reader.has("waits")) worker.waits = reader.flag("waits");
  return worker;
}

}  // namespace

std::string encode(const NodeStacks& stacks) {
  std::size_t workers = stacks.workers.size();
  for (std::size_t frames = kMaxFrames;;) {
    std::string text = text_of(stacks, workers, frames);
    if (text.size() <= kMaxStacksBytes) return text;
    (frames > 0 ? frames : workers) /= 2;
  }
}

std::optional<NodeStacks> decode_stacks(std::string_view text, std::size_t most) {
  if (text.size() > kMaxStacksBytes) return std::nullopt;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Reader reader(json);
  NodeStacks stacks{.number = reader.whole("number"),
                    .tools = read_texts(reader, "tools", kMaxTools)};
  for (const Json& each : reader.array("workers")) {
    if (stacks.workers.size() == most) break;
    Reader part(each);
    stacks.workers.push_back(read_worker(part));
    reader.include(part);
  }
  return reader.problem().empty() ? std::optional(std::move(stacks)) : std::nullopt;
}

}  // namespace ddprun::rendezvous
