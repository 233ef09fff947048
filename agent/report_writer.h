// SPDX-License-Identifier: BSD-3-Clause
//
// Writes what is left of a run: report.json, and where it failed, the cause for a launcher above
// this one.
#pragma once

#include <spdlog/fwd.h>

#include <memory>
#include <string>

#include "agent/report/job_report.h"
#include "rendezvous/decide/failure.h"
#include "worker/error_file.h"
#include "worker/process/io_thread.h"

namespace ddprun::agent {

// Threads: used from the event loop's only thread.
// Lifetime: borrows the thread for the disk.  What has been given to it is written even after this
// object is gone.
class ReportWriter {
 public:
  ReportWriter(process::IoThread& disk, std::shared_ptr<spdlog::logger> logger);

  // Into the run's log folder, where there is one.
  void write(const JobReport& report);

  // Writes the error file of a launcher above this one, in torch's form: `words` of the worker
  // where it has left any, else `cause`, what is known of the failure.  `path`: empty for no such
  // launcher.
  void pass_up(const std::string& path, worker::ErrorReport words, const std::string& cause,
               int exit_code);

 private:
  void write_later(std::string path, std::string text, std::string complaint);

  process::IoThread& disk_;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace ddprun::agent
