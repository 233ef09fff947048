// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run_question.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/json_fields.h"
#include "cli/page_client.h"
#include "cli/page_text.h"
#include "store/auth/secret.h"
#include "store/base/count.h"

namespace ddprun::cli {
namespace {

constexpr std::uint16_t kDefaultPort = 29400;  // as for --rdzv-endpoint
// How long a host that does not answer keeps a person waiting.
constexpr Duration kPatience = std::chrono::seconds(10);
constexpr std::size_t kNamedRuns = 8;

// "'job', 'job2'"
std::string names_of(const std::vector<std::string>& runs) {
  std::string names;
  for (std::size_t i = 0; i < std::min(runs.size(), kNamedRuns); ++i)
    names += (i > 0 ? ", '" : "'") + runs[i] + "'";
  return runs.size() > kNamedRuns ? names + ", ..." : names;
}

bool knows(const Json& page, const std::string& run) {
  for (const char* runs : {"runs", "ended", "elsewhere"}) {
    for (const Json& each : field(page, runs))
      if (is_named(each, run)) return true;
  }
  return false;
}

}  // namespace

Result<std::string> token_for(const StatusQuestion& question) {
  auto token_of = [](const Result<store::Secret>& secret) -> Result<std::string> {
    if (!secret) return secret.error();
    return secret->page_token();
  };
  if (!question.secret_file.empty())
    return token_of(store::Secret::from_file(question.secret_file, "--secret-file"));
  const char* secret = std::getenv("DDPRUN_SECRET");
  if (secret == nullptr || *secret == '\0') return std::string();
  return token_of(store::Secret::from_text(secret));
}

Result<PageAccess> access_of(const StatusQuestion& question) {
  std::error_code unknown;
  if (std::filesystem::is_directory(question.endpoint, unknown))
    return Error{
        Errc::InvalidInput,
        "'" + printable(question.endpoint) +
            "' is a folder, not where nodes meet (HOST[:PORT]); of a log folder ask 'ddpctl "
            "explain', 'ddpctl timeline', 'ddpctl bundle'"};
  Result<Endpoint> at = parse_endpoint(question.endpoint, kDefaultPort, 1);
  if (!at) return at.error();
  Result<std::string> token = token_for(question);
  if (!token) return token.error();
  return PageAccess{.at = *at, .token = *token};
}

Result<std::string> text_of_page(const PageAccess& access, const std::string& path,
                                 const std::string& method) {
  return get_page(access.at, path, access.token, kPatience, method);
}

Result<Json> fetch(const PageAccess& access, const std::string& path, const std::string& method) {
  Result<std::string> page = text_of_page(access, path, method);
  if (!page) return page.error();
  Json json = Json::parse(*page, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return Error{Errc::Protocol, "the page of " + to_string(access.at) + " is no JSON object"};
  return json;
}

Result<Json> page_of(const StatusQuestion& question) {
  Result<PageAccess> access = access_of(question);
  if (!access) return access.error();
  Result<Json> page = fetch(*access, "/status");
  if (page && !page->contains("runs"))
    return Error{Errc::Protocol,
                 to_string(access->at) + " is a store where no runs meet, or an older one"};
  return page;
}

Result<Json> page_with_run(const StatusQuestion& question) {
  Result<Json> page = page_of(question);
  if (!page || question.run.empty() || knows(*page, question.run)) return page;
  return run_of(*page, question).error();
}

Result<std::string> run_of(const Json& page, const StatusQuestion& question) {
  std::vector<std::string> runs;
  for (const Json& run : field(page, "runs")) {
    const Json& name = field(run, "run");
    if (!name.is_string()) continue;
    if (name.get<std::string>() == question.run) return question.run;
    runs.push_back(text(run, "run"));
  }
  auto wrong = [](std::string what) { return Error{Errc::InvalidInput, std::move(what)}; };
  if (question.run.empty() && runs.size() == 1)
    return field(field(page, "runs").front(), "run").get<std::string>();
  if (question.run.empty() && !runs.empty())
    return wrong(std::to_string(runs.size()) + " runs meet at " + question.endpoint + ": " +
                 names_of(runs) + "; choose one with --run");
  for (const Json& run : field(page, "ended")) {
    if (!question.run.empty() && text(run, "run") != printable(question.run)) continue;
    return wrong("run '" + text(run, "run") + "' is over, with " + exit_code_text(run) +
                 "; ask 'ddpctl explain', 'ddpctl status'");
  }
  for (const Json& run : field(page, "elsewhere")) {
    if (question.run.empty() || text(run, "run") == printable(question.run))
      return wrong("run '" + text(run, "run") + "' goes on at " + text(run, "at") + "; ask there");
  }
  if (question.run.empty()) return wrong("no run meets at " + question.endpoint);
  const std::string none = "no run '" + printable(question.run) + "' ";
  if (std::int64_t more = count(page, "more_runs"); more > 0)
    return wrong(none + "is on the page of " + question.endpoint + "; " + count_of(more, "run") +
                 " that meet there are not");
  return wrong(none + "meets at " + question.endpoint +
               (runs.empty() ? "" : ", but " + names_of(runs)));
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ddprun::cli
