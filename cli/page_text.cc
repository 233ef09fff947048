// SPDX-License-Identifier: BSD-3-Clause
#include "cli/page_text.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/json_fields.h"
#include "store/base/duration_text.h"

namespace ddprun::cli {

std::string text_of(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::string for_seconds(double seconds) {
  return duration_text(std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e9))));
}

std::string clock_text(double time) {
  auto seconds = static_cast<std::time_t>(std::clamp(time, 0.0, 1e12));
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%H:%M:%S", &local);
  return text;
}

std::string failure_head(const Json& failure) {
  std::string line = "rank " + std::to_string(count(failure, "rank"));
  if (std::string node = text(failure, "node"); !node.empty()) line += " on " + node;
  std::string signal = text(failure, "signal");
  return line + (signal.empty() ? " exited with code " + std::to_string(count(failure, "exit_code"))
                                : " was killed by " + signal);
}

std::string exit_code_text(const Json& run) {
  if (field(run, "exit_code").is_null()) return "no exit code";
  return "exit code " + std::to_string(count(run, "exit_code"));
}

bool is_named(const Json& run, std::string_view name) {
  const Json& own = field(run, "run");
  return name.empty() || (own.is_string() && own.get_ref<const std::string&>() == name);
}

bool has_ended(const Json& vitals) {
  std::string process = text(vitals, "process");
  return process == "-" || process == "Z" || process == "X";
}

}  // namespace ddprun::cli
