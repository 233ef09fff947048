// SPDX-License-Identifier: BSD-3-Clause
#include "cli/explain_commands.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "cli/explain_text.h"
#include "cli/log_folder_file.h"
#include "cli/status_text.h"

namespace ddprun::cli {
namespace {

namespace fs = std::filesystem;

// Of the run that the folder is about, or of that in it whose report was written last.
Result<void> explain_folder(const StatusQuestion& question, std::ostream& out) {
  Result<LogFolderFile> file =
      file_of_run(question.endpoint, "report.json", question.run,
                  "a run writes it when it ends, and one that a signal has killed does not; "
                  "'ddpctl timeline " +
                      question.endpoint + "' has what is known, attempt_* the output");
  if (!file) return file.error();
  Json report = Json::parse(file->text, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object())
    return Error{Errc::Protocol, file->path.string() + " is no report: it is no JSON object"};
  if (question.as_json) {
    out << dump(Json::array({std::move(report)}), 2) << '\n';
  } else {
    out << text_of(explain_report_lines(report, file->path.string()));
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
