// SPDX-License-Identifier: BSD-3-Clause
#include "worker/timeline_slice.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "store/base/text.h"

namespace ddprun::worker {
namespace {

using Json = nlohmann::ordered_json;
using Seconds = std::chrono::duration<double>;

// Later than any clock shows, and far from what a WallTime can hold.
constexpr double kMostSeconds = 8e9;

double seconds_of(WallTime time) {
  return std::chrono::duration_cast<Seconds>(time.time_since_epoch()).count();
}

std::optional<WallTime> time_at(const Json& json, const char* name) {
  auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  auto seconds = found->get<double>();
  bool is_time = seconds >= 0 && seconds <= kMostSeconds;
  if (!is_time) return std::nullopt;
  return WallTime(std::chrono::duration_cast<WallTime::duration>(Seconds(seconds)));
}

std::string text_of(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>()
                                       : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return cut(text, TimelineSlice::kMostText);
}

}  // namespace

std::string to_timeline_line(const TimelineSlice& slice) {
  Json json = {
      {"name", slice.name}, {"begin", seconds_of(slice.begin)}, {"end", seconds_of(slice.end)}};
  for (const auto& [name, text] : slice.facts) json[name] = cut(text, TimelineSlice::kMostText);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<TimelineSlice> parse_timeline_line(std::string_view line) {
  if (line.size() > TimelineSlice::kMostLine) return std::nullopt;
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  auto name = json.find("name");
  auto begin = time_at(json, "begin");
  auto end = time_at(json, "end");
  bool has_name =
      name != json.end() && name->is_string() && !name->get_ref<const std::string&>().empty();
  if (!has_name || !begin || !end || *end < *begin) return std::nullopt;
  TimelineSlice slice{.name = cut(name->get<std::string>(), TimelineSlice::kMostName),
                      .begin = *begin,
                      .end = *end};
  for (const auto& [key, value] : json.items()) {
    bool is_fact = key != "name" && key != "begin" && key != "end" && value.is_primitive();
    if (!is_fact || slice.facts.size() == TimelineSlice::kMostFacts) continue;
    slice.facts.emplace_back(cut(key, TimelineSlice::kMostName), text_of(value));
  }
  return slice;
}

}  // namespace ddprun::worker
