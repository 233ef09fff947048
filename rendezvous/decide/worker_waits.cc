// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/worker_waits.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "rendezvous/decide/fields.h"
#include "store/base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 52;  // what every reader of JSON can count

Json said(const store::Waiter& waiter) {
  Json names = Json::array();
  for (const std::string& name : waiter.missing) {
    if (names.size() == kMaxSaidNames) break;
    names.push_back(cut(printable(name), kMaxWaitNameBytes));
  }
  return {{"peer", waiter.peer},
          {"pid", waiter.pid ? Json(*waiter.pid) : Json()},
          {"waiting_ms", milliseconds(waiter.since)},
          {"missing_count", waiter.missing_count},
          {"missing", std::move(names)}};
}

std::string short_text(Reader& reader, const char* name) {
  return cut(reader.text(name, kMaxWaitsBytes), kMaxWaitNameBytes);
}

Json read_worker(Reader& part) {
  return {{"name", short_text(part, "name")},
          {"host", short_text(part, "host")},
          {"pid", part.number("pid", 0, kMost)}};
}

Json read_wait(Reader& part) {
  Json names = Json::array();
  for (const Json& name : part.array("missing")) {
    if (names.size() == kMaxSaidNames || !name.is_string()) break;
    names.push_back(cut(printable(name.get_ref<const std::string&>()), kMaxWaitNameBytes));
  }
  return {{"peer", short_text(part, "peer")},
          {"pid", part.has("pid") ? Json(part.number("pid", 0, kMost)) : Json()},
          {"namespace", ""},
          {"waiting_ms", part.number("waiting_ms", 0, kMost)},
          {"missing_count", part.number("missing_count", 0, kMost)},
          {"missing", std::move(names)}};
}

// Null for what is no such text, or of another round.
Json decode(std::string_view text, std::uint64_t round) {
  if (text.size() > kMaxWaitsBytes) return {};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  Reader reader(json);
  const std::uint64_t said_of = reader.round("round");
  Json expected = {{"missing_count", reader.number("missing_count", 0, kMost)},
                   {"missing", reader.list("missing", kMaxSaidWorkers, read_worker)}};
  Json waiting = reader.list("waiting", kMaxSaidWaits, read_wait);
  bool is_counted = reader.has("waiting_count");  // not by older nodes
  Json waiting_count = is_counted ? Json(reader.number("waiting_count", 0, kMost)) : Json();
  if (!reader.problem().empty() || said_of != round) return {};
  return {{"expected", std::move(expected)},
          {"waiting", std::move(waiting)},
          {"waiting_count", std::move(waiting_count)}};
}

}  // namespace

std::string encode_waits(std::uint64_t round, const store::JoinProgress& progress,
                         const std::vector<store::Waiter>& waiters) {
  Json json = {{"round", round},
               {"missing_count", progress.missing_count},
               {"missing", Json::array()},
               {"waiting", Json::array()}};
  for (const auto& missing : progress.missing) {
    if (json["missing"].size() == kMaxSaidWorkers) break;
    json["missing"].push_back({{"name", cut(missing.name, kMaxWaitNameBytes)},
                               {"host", cut(missing.host, kMaxWaitNameBytes)},
                               {"pid", missing.pid}});
  }
  // Those who have waited longest say most.
  std::vector<const store::Waiter*> longest;
  for (const store::Waiter& waiter : waiters)
    if (waiter.namespace_name.empty()) longest.push_back(&waiter);
  std::ranges::stable_sort(longest, std::greater(), &store::Waiter::since);
  json["waiting_count"] = longest.size();
  Json& waiting = json["waiting"];
  for (const store::Waiter* waiter : longest) {
    if (waiting.size() == kMaxSaidWaits) break;
    waiting.push_back(said(*waiter));
    if (!waiter->pid) waiting.back().erase("pid");
  }
  while (written(json).size() > kMaxWaitsBytes && !waiting.empty())
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(waiting.size() * 7 / 8),
                  waiting.end());
  return written(json);
}

Json worker_waits(const coordinator::State& run,
                  const std::function<std::string(const std::string& node)>& text_of) {
  if (!text_of || run.phase != coordinator::Phase::Running) return {};
  for (const auto& [id, node] : run.nodes) {
    bool has_store = node.is_member && node.round && node.round->number == run.round &&
                     node.round->ranks.group_rank == 0;
    if (has_store) return decode(text_of(id), run.round);
  }
  return {};
}

}  // namespace ddprun::rendezvous
