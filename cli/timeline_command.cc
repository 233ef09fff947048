// SPDX-License-Identifier: BSD-3-Clause
#include "cli/timeline_command.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "cli/log_folder_file.h"
#include "cli/output_file.h"
#include "rendezvous/decide/trace.h"
#include "store/base/file.h"
#include "store/base/percent.h"

namespace ddprun::cli {
namespace {

namespace fs = std::filesystem;

Result<std::string> read_from(const fs::path& folder, const std::string& run) {
  Result<LogFolderFile> file =
      file_of_run(folder, "timeline.json", run,
                  "it lies in the log folder of the node that hosts the run, with --log-dir");
  if (!file) return file.error();
  return rendezvous::completed_trace(file->text);
}

Result<std::string> read_there(const StatusQuestion& question) {
  Result<PageAccess> access = access_of(question);
  if (!access) return access.error();
  std::string run = question.run.empty() ? "" : "/" + percent_encoded(question.run);
  Result<std::string> text = text_of_page(*access, "/timeline" + run);
  if (text || text.error().code != Errc::InvalidInput) return text;
  // Only the page /status names the runs that there are.
  Result<Json> page = page_of(question);
  Result<std::string> known = page ? run_of(*page, question) : text;
  return known ? text : known;
}

Result<void> save(const std::string& text, const std::string& output) {
  constexpr mode_t kMode = 0666;
  Result<Fd> file = open_output(output, OutputMode::Replace, kMode, "open " + output);
  if (!file) return file.error();
  int error_number = write_all(file->get(), text);
  if (error_number != 0) return system_error(error_number, "write " + output);
  return {};
}

}  // namespace

Result<void> show_timeline(const StatusQuestion& question, const std::string& output,
                           std::ostream& out) {
  std::error_code error;
  bool is_folder = fs::is_directory(question.endpoint, error);
  Result<std::string> text =
      is_folder ? read_from(question.endpoint, question.run) : read_there(question);
  if (!text) return text.error();
  if (!output.empty()) return save(*text, output);
  out << *text;
  return {};
}

}  // namespace ddprun::cli
