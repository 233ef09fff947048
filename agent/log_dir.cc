// SPDX-License-Identifier: BSD-3-Clause
#include "agent/log_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "agent/decide/folder_name.h"
#include "rendezvous/random_name.h"
#include "store/base/file.h"
#include "store/base/folder.h"

namespace ddprun::agent {
namespace {

namespace fs = std::filesystem;

Error failure(const std::error_code& code, const std::string& path) {
  return {code,
          "log folder " + path + " (--log-dir DIR names another one, --log-dir /dev/null none)"};
}

Error failure(int number, const std::string& path) {
  return failure(std::error_code(number, std::system_category()), path);
}

Result<std::string> make_unique_folder(const std::string& prefix) {
  std::string path = prefix + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return failure(errno, path);
  return path;
}

// A folder can be made on a disk that has no room for a file.
Result<void> try_to_write(const std::string& folder) {
  std::string path = folder + "/.room";
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return failure(errno, folder);
  const int error = write_all(fd, std::string(4096, '\n'));
  ::close(fd);
  ::unlink(path.c_str());
  if (error != 0) return failure(error, folder);
  return {};
}

// Lets base/latest lead to `name`, as a whole: a reader sees the old link or the new one.
// What stands there and is no link stays.  A convenience: where it cannot be made, it is missing.
void link_latest(const std::string& base, const std::string& name) {
  std::string link = base + "/latest";
  std::error_code error;
  fs::file_status status = fs::symlink_status(link, error);
  if (fs::exists(status) && !fs::is_symlink(status)) return;
  std::string temporary = base + "/." + name + ".latest";  // the name is this run's alone
  if (::symlink(name.c_str(), temporary.c_str()) != 0) return;
  if (::rename(temporary.c_str(), link.c_str()) != 0) ::unlink(temporary.c_str());
}

}  // namespace

std::string temporary_folder() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (!error) folder = fs::absolute(folder, error);  // a worker may change its working directory
  return error ? "/tmp" : folder.string();
}

Result<LogDir> LogDir::create(const std::string& base, const std::string& run_id, bool has_logs) {
  std::error_code error;
  fs::path parent;
  bool is_temporary = base.empty();
  if (is_temporary) {
    parent = temporary_folder();
  } else {
    parent = fs::absolute(base, error);
    if (!error) fs::create_directories(parent, error);
    if (error) return failure(error, parent.string());
  }
  std::string name = folder_name_of(run_id, is_temporary) + "_";
  Result<std::string> path = make_unique_folder((parent / name).string());
  if (!path) return path.error();
  Result<void> written = has_logs ? try_to_write(*path) : Result<void>();
  if (!written) {
    ::rmdir(path->c_str());
    return written.error();
  }
  if (!is_temporary) link_latest(parent.string(), fs::path(*path).filename().string());
  struct stat info = {};
  ::stat(path->c_str(), &info);
  return LogDir(is_temporary, std::move(*path), info.st_dev);
}

std::string LogDir::exposure() const {
  std::string folder = fs::path(path_).parent_path().string();
  struct stat info = {};
  if (::stat(folder.c_str(), &info) != 0) return "";
  bool is_others = info.st_uid != 0 && info.st_uid != ::geteuid();
  bool is_everyones = (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0;
  if (!is_others && !is_everyones) return "";
  return "the log folder lies in " + folder + ", where " +
         (is_others ? "user " + std::to_string(info.st_uid) : "every user") +
         " can exchange it: --log-dir DIR names another place";
}

// Only a folder that is made here: one that others have made in its place is theirs.
bool LogDir::restore() const {
  if (::access(path_.c_str(), F_OK) == 0 || errno != ENOENT) return false;
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  return !error && ::mkdir(path_.c_str(), 0700) == 0;
}

Result<std::string> LogDir::make_attempt(int restart_count) const {
  std::string first = path_ + "/attempt_" + std::to_string(restart_count);
  std::string path = first;
  for (int number = 1; ::mkdir(path.c_str(), 0700) != 0; ++number) {
    int error = errno;
    if (error == ENOENT && restore()) continue;
    if (error != EEXIST) return failure(error, path);
    path = first + "." + std::to_string(number);
  }
  return path;
}

Result<std::string> LogDir::make_worker_folder(const std::string& attempt, int local_rank) {
  std::string folder = attempt + "/" + std::to_string(local_rank);
  if (::mkdir(folder.c_str(), 0700) != 0) return failure(errno, folder);
  return folder;
}

std::string LogDir::loose_error_file(int start, int local_rank) const {
  return path_ + "/error_" + std::to_string(start) + "_" + std::to_string(local_rank) + ".json";
}

// One removal a folder, and no more: each may cost a turn with the disk.
bool LogDir::remove_if_empty() const {
  if (!is_temporary_) return false;
  if (::rmdir(path_.c_str()) == 0) return true;
  std::vector<fs::path> folders = {path_};
  for (std::size_t next = 0; next < folders.size(); ++next) {
    std::error_code error;
    for (const auto& entry : entries_of(folders[next], error)) {
      if (!fs::is_directory(entry.symlink_status(error))) return false;
      folders.push_back(entry.path());
    }
    if (error) return false;
  }
  // Those inside first; each removal fails harmlessly should something have appeared meanwhile.
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    if (::rmdir(folder->c_str()) != 0) return false;
  }
  return true;
}

bool is_disk_full(const std::string& path) {
  struct statvfs info = {};
  if (::statvfs(path.c_str(), &info) != 0 || info.f_blocks == 0) return false;
  // A file system gives blocks away in pieces, and may keep the last.
  constexpr std::uint64_t kLittle = 32 * 1024;
  std::uint64_t blocks = ::geteuid() == 0 ? info.f_bfree : info.f_bavail;
  return blocks * info.f_frsize < kLittle;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  // The folder may be one in which others can make files and links: /tmp.  They cannot tell the
  // name.
  std::string temporary = path + ".ddprun-" + rendezvous::random_name();
  return replace_file(AT_FDCWD, path, temporary, text, 0600);
}

}  // namespace ddprun::agent
