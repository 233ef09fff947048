// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/staging.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <utility>

namespace ddprun::ddp {
namespace {

// Gives every page its memory now.  Kernels before 5.14 do not know the request, and touch by hand.
void touch(char* data, std::size_t bytes) {
  ::madvise(data, bytes, MADV_HUGEPAGE);  // fewer faults, where the system allows it
  if (::madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (std::size_t i = 0; i < bytes; i += kPageBytes) {
    static_cast<volatile char*>(data)[i] = 0;
  }
}

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
  const std::size_t whole = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* memory = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return system_error(errno, "reserve " + std::to_string(whole) + " bytes of memory");
  }
  data_ = static_cast<char*>(memory);
  capacity_ = whole;
  touch(data_, whole);
  return {};
}

}  // namespace ddprun::ddp
