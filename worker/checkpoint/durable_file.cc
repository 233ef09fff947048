// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "store/base/fd.h"
#include "store/base/file.h"
#include "worker/checkpoint/formats/crc32c.h"
#include "worker/checkpoint/formats/parallel_for.h"
#include "worker/checkpoint/staging.h"

namespace ddprun::ddp {
namespace {

// Large enough to keep the disk busy, small enough that the checksum finds the bytes in the cache.
constexpr std::size_t kBlockBytes = 1 << 20;

// One request to the disk, when writing past the cache, and how many are under way.
constexpr std::size_t kDirectBytes = 8 << 20;
constexpr int kDirectThreads = 4;
constexpr mode_t kMode = 0644;

Result<void> write_block(int fd, std::string_view block, const std::filesystem::path& path) {
  int error_number = write_all(fd, block);
  if (error_number != 0) return system_error(error_number, "write " + path.string());
  return {};
}

Result<void> write_at(int fd, std::string_view block, std::size_t place,
                      const std::filesystem::path& path) {
  while (!block.empty()) {
    ssize_t written = ::pwrite(fd, block.data(), block.size(), static_cast<off_t>(place));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(errno, "write " + path.string());
    block.remove_prefix(static_cast<std::size_t>(written));
    place += static_cast<std::size_t>(written);
  }
  return {};
}

// Writes `file` and the rest of its last page to `fd`, opened with O_DIRECT, by a few threads, so
// that the disk always has the next request while another thread sums; then cuts it to length.
// Returns the sum.
Result<std::uint32_t> write_direct(int fd, std::string_view file,
                                   const std::filesystem::path& path) {
  const std::size_t whole = (file.size() + kPageBytes - 1) / kPageBytes * kPageBytes;
  // Room is asked for at once: a full disk is known before the writing, and the file lies together.
  // Not every file system can; those find out as they write.
  if (::fallocate(fd, 0, 0, static_cast<off_t>(whole)) != 0 && errno == ENOSPC) {
    return system_error(ENOSPC, "write " + path.string());
  }
  const std::size_t count = (file.size() + kDirectBytes - 1) / kDirectBytes;
  std::vector<std::uint32_t> sums(count);
  std::vector<Result<void>> written(count);
  std::atomic<bool> has_failed = false;
  parallel_for(count, kDirectThreads, [&](std::size_t i) {
    if (has_failed) return;
    const std::size_t place = i * kDirectBytes;
    const std::string_view block = file.substr(place, kDirectBytes);
    sums[i] = crc32c(0, block.data(), block.size());
    const std::size_t on_disk = std::min(kDirectBytes, whole - place);
    written[i] = write_at(fd, {block.data(), on_disk}, place, path);
    if (!written[i]) has_failed = true;
  });
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!written[i]) return written[i].error();
    sum = crc32c_joined(sum, sums[i], file.substr(i * kDirectBytes, kDirectBytes).size());
  }
  if (::ftruncate(fd, static_cast<off_t>(file.size())) != 0) {
    return system_error(errno, "write " + path.string());
  }
  return sum;
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
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
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

Result<FileEntry> write_past_cache(const std::filesystem::path& path, std::string_view file) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, kMode));
  // Some file systems refuse the flag, with the file made, and some the first write.
  auto write_through_cache = [&]() -> Result<FileEntry> {
    ::unlink(path.c_str());
    return write_durably(path, {file});
  };
  if (fd.get() < 0) {
    if (errno == EINVAL) return write_through_cache();
    return system_error(errno, "create " + path.string());
  }
  Result<std::uint32_t> sum = write_direct(fd.get(), file, path);
  if (!sum && sum.error().code.value() == EINVAL) return write_through_cache();
  if (!sum) return sum.error();
  if (::fsync(fd.get()) != 0) return system_error(errno, "sync " + path.string());
  return FileEntry{.name = path.filename().string(), .size_bytes = file.size(), .crc32c = *sum};
}

Result<void> replace_durably(const std::filesystem::path& path, std::string_view file) {
  std::filesystem::path temporary = path;
  temporary += ".unfinished-" + std::to_string(::getpid());
  ::unlink(temporary.c_str());
  Result<FileEntry> written = write_past_cache(temporary, file);
  Result<void> done;
  if (!written) {
    done = written.error();
  } else if (::rename(temporary.c_str(), path.c_str()) != 0) {
    done = system_error(errno, "replace " + path.string());
  }
  if (done) return sync_folder(path.has_parent_path() ? path.parent_path() : ".");
  ::unlink(temporary.c_str());
  return done;
}

Result<void> sync_folder(const std::filesystem::path& path) {
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return system_error(errno, "open " + path.string());
  if (::fsync(folder.get()) != 0) return system_error(errno, "sync " + path.string());
  return {};
}

Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO would wait
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
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
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
