// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/start_failure.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "agent/decide/core.h"
#include "store/base/text.h"

namespace ddprun::agent {
namespace {

constexpr int kExitUsage = 2;  // argparse's, and Python's own
constexpr int kFreeDeaths = 10;
constexpr Duration kFirstDelay = std::chrono::milliseconds(100);
constexpr Duration kLastDelay = std::chrono::seconds(10);

// The exceptions that come from the text of a program and its surroundings, not from what it did.
constexpr std::array<std::string_view, 4> kTextErrors = {
    "ModuleNotFoundError:", "SyntaxError:", "IndentationError:", "TabError:"};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// The line with which a traceback, or a usage text, ends.
std::string last_line(const std::vector<std::string>& lines) {
  auto found = std::find_if(lines.rbegin(), lines.rend(),
                            [](const std::string& line) { return !is_blank(line); });
  return found == lines.rend() ? "" : *found;
}

bool has_usage_text(const std::vector<std::string>& lines) {
  return std::any_of(lines.begin(), lines.end(),
                     [](const std::string& line) { return line.starts_with("usage: "); });
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_text_error(std::string_view line) {
  return std::any_of(kTextErrors.begin(), kTextErrors.end(),
                     [line](std::string_view name) { return line.starts_with(name); });
}

}  // namespace

std::optional<std::string> start_failure(const WorkerExit& exit, Duration uptime,
                                         std::uint64_t round) {
  if (round != 0 || uptime > kStartLimit || exit.status.signal != 0) return std::nullopt;
  const int code = exit.status.exit_code;
  const std::string& message = exit.report.message;
  std::string last = printable(last_line(exit.stderr_lines));
  if (code == kExitNotExecutable) return "a command cannot be executed (exit code 126)";
  if (code == kExitCannotStart) return "a command was not found (exit code 127)";
  if (code == kExitUsage) {
    if (contains(last, "can't open file")) return "the script was not found: " + last;
    if (has_usage_text(exit.stderr_lines) && contains(last, ": error: "))
      return "its arguments are wrong: " + last;
    return std::nullopt;
  }
  if (code != 1) return std::nullopt;
  std::string exception = message.empty() ? last : printable(message.substr(0, message.find('\n')));
  if (is_text_error(exception)) return exception;
  if (contains(last, ": No module named ")) return last;  // python -m
  return std::nullopt;
}

std::optional<std::string> excluded_from_restart(const process::ExitStatus& status,
                                                 const std::set<int>& codes) {
  if (!codes.contains(status.shell_code())) return std::nullopt;
  return "exit code " + std::to_string(status.shell_code()) + " is one of --no-restart-exit-codes";
}

int exit_code_of_start(const Error& error) {
  using std::errc;
  for (errc refusal :
       {errc::not_enough_memory, errc::resource_unavailable_try_again, errc::too_many_files_open,
        errc::too_many_files_open_in_system, errc::io_error}) {
    if (error.code == refusal) return kExitInfrastructure;
  }
  bool is_missing =
      error.code == errc::no_such_file_or_directory || error.code == errc::not_a_directory;
  return is_missing ? kExitCannotStart : kExitNotExecutable;
}

Duration restart_delay(int young_deaths) {
  if (young_deaths <= kFreeDeaths) return Duration::zero();
  Duration delay = kFirstDelay;
  for (int i = kFreeDeaths + 1; i < young_deaths && delay < kLastDelay; ++i) delay *= 2;
  return std::min(delay, kLastDelay);
}

}  // namespace ddprun::agent
