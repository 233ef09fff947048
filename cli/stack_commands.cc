// SPDX-License-Identifier: BSD-3-Clause
#include "cli/stack_commands.h"

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/json_fields.h"
#include "cli/stack_text.h"
#include "rendezvous/decide/stack_inquiry.h"

namespace ddprun::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPollPeriod(100);
constexpr std::chrono::seconds kPatience(7);  // a node takes 5 s at most
constexpr int kMostRequests = 4;              // while others ask, too

Result<void> check_rank(const Json& page, const std::string& run, std::optional<int> rank) {
  for (const Json& each : field(page, "runs")) {
    if (!rank || text(each, "run") != printable(run)) continue;
    std::int64_t size = count(each, "world_size");
    if (size > 0 && *rank >= size)
      return Error{Errc::InvalidInput, "there is no rank " + std::to_string(*rank) +
                                           ": the run has ranks 0 to " + std::to_string(size - 1)};
  }
  return {};
}

std::string in_seconds(double ms) {
  return std::to_string(static_cast<int>(ms / 1000) + 1) + " s";
}

// The page once it is about this request.
Result<Json> ask(const PageAccess& access, const std::string& path, std::optional<int> rank) {
  for (int request = 0; request < kMostRequests; ++request) {
    Result<Json> page = fetch(access, path, "PUT");
    if (!page || answer_in(*page, rank) != StackAnswer::Other) return page;
    if (!is_set(*page, "is_training"))
      return Error{Errc::InvalidInput, "no worker runs now ('ddpctl waits' says what is awaited)"};
    double wait = number(*page, "next_in_ms").value_or(0);
    if (wait <= 0) {
      return Error{Errc::InvalidInput,
                   "the nodes could not be asked: the round is about to be stopped"};
    }
    std::cerr << "ddpctl: others have just asked for stacks; asking in " << in_seconds(wait)
              << std::endl;
    std::this_thread::sleep_for(milliseconds(static_cast<int>(std::min(wait, 60'000.0)) + 1));
  }
  return Error{Errc::TimedOut, "others ask for other stacks again and again"};
}

}  // namespace

Result<Json> stacks_of(const StatusQuestion& question, const Json& status, const std::string& run) {
  if (auto is_there = check_rank(status, run, question.rank); !is_there) return is_there.error();
  Result<PageAccess> access = access_of(question);
  if (!access) return access.error();
  const std::string path = to_string(rendezvous::StacksTarget{.run = run, .rank = question.rank});
  Result<Json> page = ask(*access, path, question.rank);
  const auto until = steady_clock::now() + kPatience;
  while (page && answer_in(*page, question.rank) == StackAnswer::Awaited &&
         steady_clock::now() < until) {
    std::this_thread::sleep_for(kPollPeriod);
    page = fetch(*access, path);
  }
  return page;
}

Result<void> show_stacks(const StatusQuestion& question, std::ostream& out) {
  Result<Json> status = page_of(question);
  if (!status) return status.error();
  Result<std::string> run = run_of(*status, question);
  if (!run) return run.error();
  Result<Json> page = stacks_of(question, *status, *run);
  if (!page) return page.error();
  if (question.as_json) {
    out << dump(*page, 2) << '\n';
    return {};
  }
  Lines lines = stack_lines(*page, question.rank);
  if (lines.empty()) lines.push_back("no worker that was asked for runs any more");
  out << text_of(lines);
  return {};
}

}  // namespace ddprun::cli
