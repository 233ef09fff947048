// SPDX-License-Identifier: BSD-3-Clause
#include "cli/explain_commands.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <sstream>
#include <utility>

#include "cli/explain_text.h"
#include "cli/log_folder_file.h"
#include "cli/status_text.h"

namespace ddprun::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReport = "report.json";

// Of the run that the folder is about, or of that in it whose report was written last.
Result<void> explain_folder(const StatusQuestion& question, std::ostream& out) {
  std::optional<fs::path> path = file_of_run(question.endpoint, kReport, question.run);
  if (!path) {
    std::string whose = question.run.empty() ? "" : " of run '" + question.run + "'";
    return Error{Errc::InvalidInput,
                 question.endpoint + " has no " + kReport + whose +
                     ": a run writes it when it ends, and one that a signal has killed does not; "
                     "'ddpctl timeline " +
                     question.endpoint + "' has what is known, attempt_* the output"};
  }
  std::ifstream file(*path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return system_error(errno, "read " + path->string());
  Json report = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!report.is_object())
    return Error{Errc::Protocol, path->string() + " is no report: it is no JSON object"};
  if (question.as_json) {
    out << dump(Json::array({std::move(report)}), 2) << '\n';
  } else {
    out << text_of(explain_report_lines(report, path->string()));
  }
  return {};
}

}  // namespace

Result<void> show_explanation(const StatusQuestion& question, std::ostream& out) {
  std::error_code unknown;
  if (fs::is_directory(question.endpoint, unknown)) return explain_folder(question, out);
  Result<Json> page = page_with_run(question);
  if (!page) return page.error();
  std::vector<Json> runs = explained_runs(*page, question.run);
  if (question.as_json) {
    Json all = Json::array();
    for (const Json& run : runs) all.push_back(explain_json(run));
    out << dump(all, 2) << '\n';
    return {};
  }
  Lines elsewhere = elsewhere_lines(*page, question.run);
  if (runs.empty() && elsewhere.empty()) out << "no run meets at " << question.endpoint << '\n';
  out << text_of(elsewhere);
  for (const Json& run : runs) out << text_of(explain_lines(run));
  return {};
}

}  // namespace ddprun::cli
