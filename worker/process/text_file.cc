// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <fstream>

#include "store/base/fd.h"
#include "store/base/file.h"

namespace ddprun::process {
namespace {

struct RegularFile {
  Fd fd;
  std::size_t size = 0;
};

std::optional<RegularFile> open_regular_file(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  struct stat info = {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return RegularFile{std::move(fd), static_cast<std::size_t>(info.st_size)};
}

// At most `limit` bytes from `offset` on.
std::optional<std::string> read_part(const Fd& fd, std::size_t offset, std::size_t limit) {
  Result<std::string> text = read_from(fd.get(), limit, "read a file", static_cast<off_t>(offset));
  return text ? std::optional(std::move(*text)) : std::nullopt;
}

}  // namespace

std::optional<std::string> text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 4096> part;
  do {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (!file.eof()) return std::nullopt;
  return text;
}

std::optional<std::string> text_of_regular_file(const std::string& path, std::size_t limit) {
  auto file = open_regular_file(path);
  if (!file || file->size > limit) return std::nullopt;
  return read_part(file->fd, 0, limit);
}

std::optional<std::string> end_of_regular_file(const std::string& path, std::size_t limit) {
  auto file = open_regular_file(path);
  if (!file) return std::nullopt;
  return read_part(file->fd, file->size - std::min(file->size, limit), limit);
}

std::optional<std::string> part_of_regular_file(const std::string& path, std::size_t offset,
                                                std::size_t limit) {
  auto file = open_regular_file(path);
  if (!file) return std::nullopt;
  return read_part(file->fd, offset, limit);
}

}  // namespace ddprun::process
