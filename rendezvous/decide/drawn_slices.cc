// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/drawn_slices.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "rendezvous/decide/fields.h"
#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxTextBytes = 1024;
constexpr std::size_t kMaxFacts = 16;
constexpr int kMaxLocalRank = 1024;
// Microseconds since 1970, in the year 2200.
constexpr std::int64_t kLatest = 7'258'118'400'000'000;

std::int64_t microseconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::string shown(const Json& text) {
  return cut(printable(text.get_ref<const std::string&>()), kMaxTextBytes);
}

std::string line_of(const TraceEvent& slice) {
  Json json = {{"local_rank", slice.thread},
               {"name", cut(slice.name, kMaxTextBytes)},
               {"begin", microseconds(slice.at)},
               {"end", microseconds(slice.until)}};
  for (const auto& [name, value] : slice.facts)
    json["facts"].push_back({cut(name, kMaxTextBytes), cut(value, kMaxTextBytes)});
  return written(json);
}

// What is no fact is left out.
std::vector<std::pair<std::string, std::string>> read_facts(Reader& reader) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const Json& fact : reader.array("facts")) {
    bool is_fact =
        fact.is_array() && fact.size() == 2 && fact[0].is_string() && fact[1].is_string();
    if (!is_fact) continue;
    if (facts.size() == kMaxFacts) break;
    facts.emplace_back(shown(fact[0]), shown(fact[1]));
  }
  return facts;
}

WallTime read_time(Reader& reader, const char* name) {
  return WallTime(std::chrono::microseconds(reader.number(name, 0, kLatest)));
}

std::optional<TraceEvent> read_slice(const Json& json) {
  Reader reader(json);
  TraceEvent slice{.kind = TraceEvent::Kind::Slice,
                   .at = read_time(reader, "begin"),
                   .until = read_time(reader, "end"),
                   .thread = reader.integer("local_rank", 0, kMaxLocalRank),
                   .name = cut(reader.text("name"), kMaxTextBytes)};
  if (reader.has("facts")) slice.facts = read_facts(reader);
  bool is_good = reader.problem().empty() && slice.at <= slice.until;
  return is_good ? std::optional(std::move(slice)) : std::nullopt;
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
  Reader reader(json);
  std::uint64_t number = reader.whole("first");
  const Json& slices = reader.array("slices");
  if (!reader.problem().empty() || slices.size() > kMaxSlices) return news;
  auto seen = seen_.try_emplace(node, number).first;
  if (number > seen->second) {
    news.push_back({.thread = kAgentThread,
                    .name = std::to_string(number - seen->second) +
                            " slices of its workers are left out: too many in a moment"});
  }
  for (const Json& each : slices) {
    auto slice = number++ >= seen->second ? read_slice(each) : std::nullopt;
    if (slice) news.push_back(std::move(*slice));
  }
  seen->second = std::max(seen->second, number);
  return news;
}

}  // namespace ddprun::rendezvous
