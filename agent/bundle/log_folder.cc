// SPDX-License-Identifier: BSD-3-Clause
#include "agent/bundle/log_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "store/base/file.h"
#include "store/base/folder.h"

namespace ddprun::agent {
namespace {

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
constexpr int kFile = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;  // a FIFO must not block

// The run that the link `latest` of a --log-dir leads to, if it is a folder beside it; "" else.
std::string latest_in(int folder) {
  std::array<char, 512> name{};
  ssize_t size = ::readlinkat(folder, "latest", name.data(), name.size() - 1);
  std::string target(name.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  bool is_beside = !target.empty() && target.find('/') == std::string::npos && target != "..";
  return is_beside ? target : "";
}

void list(int folder, const std::string& prefix, int depth, std::vector<LogFile>& files,
          std::vector<std::string>& notes) {
  std::error_code error;
  auto names = names_in(folder, SIZE_MAX, error, [](std::string_view) { return true; });
  if (error && names.empty()) return notes.push_back("not read: " + prefix);
  for (const std::string& name : names) {
    std::string path = prefix + name;
    if (files.size() >= LogFolder::kMostFiles)
      return notes.push_back("not read: " + path + ", ...");
    struct stat info {};
    if (::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;  // it has gone
    if (S_ISREG(info.st_mode)) {
      files.push_back({.path = path,
                       .size = static_cast<std::uint64_t>(info.st_size),
                       .mtime = info.st_mtim.tv_sec});
    } else if (S_ISDIR(info.st_mode) && depth > 0) {
      Fd below(::openat(folder, name.c_str(), kFolder));
      if (!below) {
        notes.push_back("not read: " + path);
        continue;
      }
      list(below.get(), path + '/', depth - 1, files, notes);
    } else {
      notes.push_back("not read, since it is no regular file: " + path);
    }
  }
}

// Each folder on the way is opened by itself, so that none is a link.
Result<Fd> open_below(int folder, std::string_view path) {
  Fd at(::dup(folder));
  for (;;) {
    auto slash = path.find('/');
    std::string name(path.substr(0, slash));
    bool is_last = slash == std::string_view::npos;
    Fd next(::openat(at.get(), name.c_str(), is_last ? kFile : kFolder));
    if (!next) return system_error(errno, "open " + std::string(path));
    if (is_last) return next;
    at = std::move(next);
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

Result<LogFolder> LogFolder::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return system_error(errno, "open the log folder " + path);
  std::string latest = latest_in(fd.get());
  if (latest.empty()) return LogFolder(std::move(fd), path);
  Fd run(::openat(fd.get(), latest.c_str(), kFolder));
  if (!run) return system_error(errno, "open the log folder " + path + "/" + latest);
  return LogFolder(std::move(run), path + "/" + latest);
}

std::vector<LogFile> LogFolder::files(std::vector<std::string>& notes) const {
  std::vector<LogFile> files;
  list(fd_.get(), "", kMostDepth, files, notes);
  return files;
}

Result<std::string> LogFolder::end_of(const std::string& file, std::size_t limit) const {
  Result<Fd> fd = open_below(fd_.get(), file);
  if (!fd) return fd.error();
  struct stat info {};
  if (::fstat(fd->get(), &info) != 0) return system_error(errno, "look at " + file);
  if (!S_ISREG(info.st_mode)) return system_error(ENOENT, "read " + file);
  auto size = static_cast<std::uint64_t>(info.st_size);
  off_t from = size > limit ? static_cast<off_t>(size - limit) : 0;
  return read_from(fd->get(), limit, "read " + file, from);
}

}  // namespace ddprun::agent
