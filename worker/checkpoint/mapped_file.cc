// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "store/base/fd.h"
#include "worker/checkpoint/formats/parallel_for.h"

namespace ddprun::ddp {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO would wait
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    return system_error(errno, "open " + path.string());
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{Errc::InvalidInput, path.string() + " is no regular file"};
  }
  MappedFile mapped;
  mapped.size_ = static_cast<std::size_t>(status.st_size);
  if (mapped.size_ == 0) return mapped;
  void* memory = ::mmap(nullptr, mapped.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
  if (memory == MAP_FAILED) return system_error(errno, "map " + path.string());
  mapped.data_ = static_cast<char*>(memory);
  ::madvise(memory, mapped.size_, MADV_SEQUENTIAL);
  return mapped;
}

Result<void> MappedFile::read_ahead() {
  std::atomic<bool> has_failed = false;
  static constexpr std::size_t kPartBytes = 8 << 20;
  parallel_for((size_ + kPartBytes - 1) / kPartBytes, memory_threads(), [&](std::size_t i) {
    const std::size_t begin = i * kPartBytes;
    // Before Linux 5.14 this does nothing (EINVAL): pages come as they are looked at.
    const int result =
        ::madvise(data_ + begin, std::min(kPartBytes, size_ - begin), MADV_POPULATE_READ);
    if (result != 0 && (errno == EFAULT || errno == EHWPOISON)) has_failed = true;
  });
  if (has_failed) return system_error(EIO, "read it");
  return {};
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace ddprun::ddp
