// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/file_timer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ddprun::agent {
namespace {

constexpr double kLastSecond =
    9e9;  // the year 2255; the clock's 64 bits of nanoseconds end in 2262

Error bad_line(const std::string& what) {
  return {Errc::Protocol, "a line of the timer file is ignored: " + what};
}

}  // namespace

Result<void> FileTimers::take(std::string_view line) {
  auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return bad_line("it is no JSON object");
  auto is_good = [&json](const char* name, auto predicate) {
    auto found = json.find(name);
    return found != json.end() && predicate(*found);
  };
  auto is_integer = [](const auto& value) { return value.is_number_integer(); };
  bool has_all = is_good("pid", is_integer) && is_good("signal", is_integer) &&
                 is_good("scope_id", [](const auto& value) { return value.is_string(); }) &&
                 is_good("expiration_time", [](const auto& value) { return value.is_number(); });
  if (!has_all) return bad_line("pid, scope_id, expiration_time or signal is missing");
  std::pair key(json["pid"].get<int>(), json["scope_id"].get<std::string>());
  auto seconds = json["expiration_time"].get<double>();
  if (seconds < 0) {
    timers_.erase(key);
    return {};
  }
  if (timers_.size() >= kMaxTimers) return bad_line("there are too many timers");
  auto due = std::chrono::duration_cast<WallTime::duration>(
      std::chrono::duration<double>(std::min(seconds, kLastSecond)));
  timers_[key] = {.due = WallTime(due), .signal = json["signal"].get<int>()};
  return {};
}

std::optional<ExpiredTimer> FileTimers::next_expired(WallTime now) {
  auto first =
      std::ranges::min_element(timers_, {}, [](const auto& entry) { return entry.second.due; });
  if (first == timers_.end() || first->second.due > now) return std::nullopt;
  ExpiredTimer expired{
      .pid = first->first.first, .scope = first->first.second, .signal = first->second.signal};
  timers_.erase(first);
  if (expired.signal > 0)
    std::erase_if(timers_, [&](const auto& entry) { return entry.first.first == expired.pid; });
  return expired;
}

std::optional<WallTime> FileTimers::next_due() const {
  auto first =
      std::ranges::min_element(timers_, {}, [](const auto& entry) { return entry.second.due; });
  if (first == timers_.end()) return std::nullopt;
  return first->second.due;
}

}  // namespace ddprun::agent
