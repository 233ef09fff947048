// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/drawn_slices.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxTextBytes = 1024;
constexpr std::size_t kMaxFacts = 16;
constexpr int kMaxLocalRank = 1024;
// Microseconds since 1970, in the year 2200.
constexpr std::int64_t kLatest = 7'258'118'400'000'000;

std::int64_t microseconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::string line_of(const TraceEvent& slice) {
  Json json = {{"local_rank", slice.thread},
               {"name", cut(slice.name, kMaxTextBytes)},
               {"begin", microseconds(slice.at)},
               {"end", microseconds(slice.until)}};
  for (const auto& [name, value] : slice.facts)
    json["facts"].push_back({cut(name, kMaxTextBytes), cut(value, kMaxTextBytes)});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::int64_t> whole_in(const Json& json, const char* name, std::int64_t most) {
  auto field = json.find(name);
  if (field == json.end() || !field->is_number_integer()) return std::nullopt;
  auto number = field->get<std::int64_t>();
  return number >= 0 && number <= most ? std::optional(number) : std::nullopt;
}

std::string shown(const Json& text) {
  return cut(printable(text.get_ref<const std::string&>()), kMaxTextBytes);
}

void take_facts(const Json& json, TraceEvent& slice) {
  auto facts = json.find("facts");
  if (facts == json.end() || !facts->is_array()) return;
  for (const Json& fact : *facts) {
    bool is_fact =
        fact.is_array() && fact.size() == 2 && fact[0].is_string() && fact[1].is_string();
    if (is_fact && slice.facts.size() < kMaxFacts)
      slice.facts.emplace_back(shown(fact[0]), shown(fact[1]));
  }
}

std::optional<TraceEvent> slice_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  auto local_rank = whole_in(json, "local_rank", kMaxLocalRank);
  auto begin = whole_in(json, "begin", kLatest);
  auto end = whole_in(json, "end", kLatest);
  auto name = json.find("name");
  bool is_slice = local_rank && begin && end && *begin <= *end && name != json.end();
  if (!is_slice || !name->is_string()) return std::nullopt;
  TraceEvent slice{.kind = TraceEvent::Kind::Slice,
                   .at = WallTime(std::chrono::microseconds(*begin)),
                   .until = WallTime(std::chrono::microseconds(*end)),
                   .thread = static_cast<int>(*local_rank),
                   .name = shown(*name)};
  take_facts(json, slice);
  return slice;
}

}  // namespace

void SliceBook::add(const TraceEvent& slice) {
  lines_.push_back(line_of(slice));
  if (lines_.size() > kMaxSlices) lines_.pop_front();
  ++end_;
}

std::string SliceBook::text() const {
  constexpr std::size_t kHeadBytes = 64;
  std::size_t bytes = kHeadBytes;
  std::size_t first = lines_.size();
  while (first > 0 && bytes + lines_[first - 1].size() + 1 <= kMaxSlicesBytes)
    bytes += lines_[--first].size() + 1;
  std::string text = "{\"first\":" + std::to_string(end_ - (lines_.size() - first));
  text += ",\"slices\":[";
  for (std::size_t i = first; i < lines_.size(); ++i) text += (i == first ? "" : ",") + lines_[i];
  return text + "]}";
}

std::vector<TraceEvent> SliceWatch::news(const std::string& node, std::string_view text) {
  std::vector<TraceEvent> news;
  if (text.empty() || text.size() > kMaxSlicesBytes) return news;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return news;
  auto first = whole_in(json, "first", INT64_MAX / 2);
  auto slices = json.find("slices");
  if (!first || slices == json.end() || !slices->is_array() || slices->size() > kMaxSlices)
    return news;
  auto number = static_cast<std::uint64_t>(*first);
  auto seen = seen_.try_emplace(node, number).first;
  if (number > seen->second) {
    news.push_back({.thread = kAgentThread,
                    .name = std::to_string(number - seen->second) +
                            " slices of its workers are left out: too many in a moment"});
  }
  for (const Json& each : *slices) {
    auto slice = number++ >= seen->second ? slice_of(each) : std::nullopt;
    if (slice) news.push_back(std::move(*slice));
  }
  seen->second = std::max(seen->second, number);
  return news;
}

}  // namespace ddprun::rendezvous
