// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/stacks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

using Json = nlohmann::json;

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
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string text_in(const Json& json, const char* name) {
  auto field = json.find(name);
  bool is_text = field != json.end() && field->is_string();
  return is_text ? cut(printable(field->get_ref<const std::string&>()), kMaxFrameBytes) : "";
}

std::vector<std::string> texts_in(const Json& json, const char* name, std::size_t most) {
  std::vector<std::string> texts;
  auto field = json.find(name);
  if (field == json.end() || !field->is_array()) return texts;
  for (const Json& each : *field) {
    if (texts.size() == most || !each.is_string()) break;
    texts.push_back(cut(printable(each.get_ref<const std::string&>()), kMaxFrameBytes));
  }
  return texts;
}

std::optional<int> whole_in(const Json& json, const char* name) {
  auto field = json.find(name);
  if (field == json.end() || !field->is_number_integer()) return std::nullopt;
  auto number = field->get<std::int64_t>();
  if (number < 0 || number > INT32_MAX) return std::nullopt;
  return static_cast<int>(number);
}

std::optional<WorkerStack> read_worker(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  auto rank = whole_in(json, "rank");
  auto pid = whole_in(json, "pid");
  if (!rank || !pid) return std::nullopt;
  WorkerStack worker{.rank = *rank,
                     .pid = *pid,
                     .in = text_in(json, "in"),
                     .place = text_in(json, "place"),
                     .doing = text_in(json, "doing"),
                     .frames = texts_in(json, "frames", kMaxFrames),
                     .problem = text_in(json, "problem")};
  auto waits = json.find("waits");
  if (waits != json.end() && waits->is_boolean()) worker.waits = waits->get<bool>();
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
  if (!json.is_object()) return std::nullopt;
  auto number = json.find("number");
  auto workers = json.find("workers");
  bool is_one = number != json.end() && number->is_number_unsigned() && workers != json.end() &&
                workers->is_array();
  if (!is_one) return std::nullopt;
  NodeStacks stacks{.number = number->get<std::uint64_t>(),
                    .tools = texts_in(json, "tools", kMaxTools)};
  for (const Json& each : *workers) {
    if (stacks.workers.size() == most) break;
    auto worker = read_worker(each);
    if (!worker) return std::nullopt;
    stacks.workers.push_back(std::move(*worker));
  }
  return stacks;
}

}  // namespace ddprun::rendezvous
