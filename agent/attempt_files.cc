// SPDX-License-Identifier: BSD-3-Clause
#include "agent/attempt_files.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "worker/process/log_file.h"

namespace ddprun::agent {
namespace {

Result<Fd> open_if(bool is_wanted, const std::string& path) {
  if (!is_wanted) return Fd();
  return process::LogFile::open(path);
}

Result<AttemptFiles::OfWorker> make_worker_files(const std::string& attempt, int local_rank,
                                                 const WorkerRoutes& routes) {
  Result<std::string> folder = LogDir::make_worker_folder(attempt, local_rank);
  if (!folder) return folder.error();
  Result<Fd> out = open_if(goes_to_file(routes.out), *folder + "/stdout.log");
  if (!out) return out.error();
  Result<Fd> err = open_if(goes_to_file(routes.err), *folder + "/stderr.log");
  if (!err) return err.error();
  return AttemptFiles::OfWorker{std::move(*folder), std::move(*out), std::move(*err)};
}

bool says_disk_full(const Error& error) {
  return error.code == std::errc::no_space_on_device || error.code.value() == EDQUOT;
}

// The workers would lack them as well.
bool says_no_descriptors(const Error& error) {
  return error.code == std::errc::too_many_files_open ||
         error.code == std::errc::too_many_files_open_in_system;
}

AttemptFiles no_files(const AttemptFilesSpec& spec) {
  AttemptFiles files;
  files.workers.resize(spec.routes.size());
  return files;
}

Result<AttemptFiles> make_in_log_dir(const AttemptFilesSpec& spec) {
  AttemptFiles files;
  Result<std::string> folder = spec.log_dir->make_attempt(spec.restart_count);
  if (!folder) return folder.error();
  files.folder = std::move(*folder);
  auto out = open_if(spec.has_stdout_filters, files.folder + "/filtered_stdout.log");
  if (!out) return out.error();
  files.filtered_out = std::move(*out);
  auto err = open_if(spec.has_stderr_filters, files.folder + "/filtered_stderr.log");
  if (!err) return err.error();
  files.filtered_err = std::move(*err);
  for (std::size_t i = 0; i < spec.routes.size(); ++i) {
    auto worker = make_worker_files(files.folder, static_cast<int>(i), spec.routes[i]);
    if (!worker) return worker.error();
    files.workers.push_back(std::move(*worker));
  }
  return files;
}

}  // namespace

bool goes_to_file(StreamRoute route) {
  return route == StreamRoute::File || route == StreamRoute::FileAndConsole;
}

AttemptFilesSpec attempt_files_spec(const WorkerGroupConfig& config, int restart_count,
                                    bool is_first) {
  return {.log_dir = config.log_dir,
          .is_first = is_first,
          .has_late_folders = config.has_late_folders,
          .restart_count = restart_count,
          .routes = config.routes,
          .has_stdout_filters = !config.stdout_filters.empty(),
          .has_stderr_filters = !config.stderr_filters.empty()};
}

Result<AttemptFiles> make_attempt_files(const AttemptFilesSpec& spec) {
  if (!spec.log_dir || spec.has_late_folders) {
    if (spec.log_dir) spec.log_dir->restore();
    return no_files(spec);
  }
  Result<AttemptFiles> files = make_in_log_dir(spec);
  if (files || says_no_descriptors(files.error())) return files;
  if (spec.is_first && !says_disk_full(files.error())) return files;
  AttemptFiles none = no_files(spec);
  none.lost = to_string(files.error());
  return none;
}

}  // namespace ddprun::agent
