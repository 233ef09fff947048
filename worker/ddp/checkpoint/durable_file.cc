// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "worker/ddp/checkpoint/crc32c.h"

namespace ddprun::ddp {
namespace {

// Closes on the way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Large enough to keep the disk busy, small enough that the checksum finds the bytes in the cache.
constexpr std::size_t kBlockBytes = 1 << 20;

Result<void> write_block(int fd, std::string_view block, const std::filesystem::path& path) {
  while (!block.empty()) {
    ssize_t written = ::write(fd, block.data(), block.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(errno, "write " + path.string());
    block.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Result<std::size_t> read_block(int fd, char* data, std::size_t size,
                               const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < size) {
    ssize_t got = ::read(fd, data + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(errno, "read " + path.string());
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace

Result<FileEntry> write_durably(const std::filesystem::path& path,
                                const std::vector<std::string_view>& pieces) {
  constexpr mode_t kMode = 0644;
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (file.get() < 0) return system_error(errno, "create " + path.string());
  FileEntry entry{.name = path.filename().string()};
  for (std::string_view piece : pieces) {
    for (std::size_t begin = 0; begin < piece.size(); begin += kBlockBytes) {
      std::string_view block = piece.substr(begin, kBlockBytes);
      entry.crc32c = crc32c(entry.crc32c, block.data(), block.size());
      Result<void> done = write_block(file.get(), block, path);
      if (!done) return done.error();
      entry.size_bytes += block.size();
    }
  }
  if (::fsync(file.get()) != 0) return system_error(errno, "sync " + path.string());
  return entry;
}

Result<void> sync_folder(const std::filesystem::path& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return system_error(errno, "open " + path.string());
  if (::fsync(folder.get()) != 0) return system_error(errno, "sync " + path.string());
  return {};
}

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    return system_error(errno, "open " + path.string());
  }
  auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > max_bytes) {
    return Error{Errc::LimitExceeded,
                 path.string() + " is longer than " + std::to_string(max_bytes) + " bytes"};
  }
  std::string content(size, '\0');
  Result<std::size_t> got = read_block(file.get(), content.data(), content.size(), path);
  if (!got) return got.error();
  content.resize(*got);
  return content;
}

Result<std::uint32_t> checksum_of(const std::filesystem::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return system_error(errno, "open " + path.string());
  std::string block(kBlockBytes, '\0');
  std::uint32_t crc = 0;
  for (;;) {
    Result<std::size_t> got = read_block(file.get(), block.data(), block.size(), path);
    if (!got) return got.error();
    if (*got == 0) return crc;
    crc = crc32c(crc, block.data(), *got);
  }
}

}  // namespace ddprun::ddp
