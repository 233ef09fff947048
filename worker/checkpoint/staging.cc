// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace ddprun::ddp {
namespace {

// As much as is asked of the system in one go: meanwhile no other thread can map memory.
constexpr std::size_t kTouchBytes = 8 << 20;

// Whole large pages, so that the file's last bytes lie in one too.
constexpr std::size_t kLargePageBytes = 2 << 20;

}  // namespace

Staging::~Staging() {
  if (data_) ::munmap(data_, capacity_);
}

Staging::Staging(Staging&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}

Staging& Staging::operator=(Staging&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

Result<void> Staging::reserve(std::size_t bytes) {
  if (bytes <= capacity_) return {};
  if (data_) ::munmap(std::exchange(data_, nullptr), std::exchange(capacity_, 0));
  const std::size_t unit = bytes < kLargePageBytes ? kPageBytes : kLargePageBytes;
  const std::size_t whole = (bytes + unit - 1) / unit * unit;
  void* memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return system_error(errno, "reserve " + std::to_string(whole) + " bytes of memory");
  }
  data_ = static_cast<char*>(memory);
  capacity_ = whole;
  ::madvise(memory, whole, MADV_HUGEPAGE);  // fewer faults and look-ups, where they are allowed
  return {};
}

void Staging::touch(const std::atomic<bool>& stop) {
  for (std::size_t begin = 0; begin < capacity_ && !stop; begin += kTouchBytes) {
    // Kernels before 5.14 do not know the request: there, the first copy touches.
    const std::size_t bytes = std::min(kTouchBytes, capacity_ - begin);
    if (::madvise(data_ + begin, bytes, MADV_POPULATE_WRITE) != 0) return;
  }
}

}  // namespace ddprun::ddp
