// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report_writer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "agent/log_dir.h"
#include "store/clock.h"

namespace ddprun::agent {

ReportWriter::ReportWriter(process::IoThread& disk, std::shared_ptr<spdlog::logger> logger)
    : disk_(disk), logger_(std::move(logger)) {}

void ReportWriter::write(const JobReport& report) {
  if (report.log_path.empty()) return;
  write_later(report.log_path + "/report.json", to_json(report), "no report");
}

void ReportWriter::pass_up(const std::string& path, worker::ErrorReport words,
                           const std::string& cause, int exit_code) {
  if (path.empty()) return;
  if (words.message.empty()) words.message = cause;
  if (words.traceback.empty()) words.traceback = words.message;  // all that torchrun shows of it
  if (words.timestamp == 0) {
    auto since_epoch = wall_now().time_since_epoch();
    words.timestamp = std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
  }
  write_later(path, worker::to_error_file(words, exit_code),
              "the cause could not be told to the launcher above");
}

void ReportWriter::write_later(std::string path, std::string text, std::string complaint) {
  auto written = std::make_shared<Result<void>>(
      Error{Errc::LimitExceeded, "write " + path});  // where that throws
  std::string call = "write " + path;
  disk_.run(
      std::move(call),
      [path = std::move(path), text = std::move(text), written] {
        *written = write_file(path, text);
      },
      [logger = logger_, written, complaint = std::move(complaint)] {
        if (!*written) logger->warn("{}: {}", complaint, to_string(written->error()));
      });
}

}  // namespace ddprun::agent
