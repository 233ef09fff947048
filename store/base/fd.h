// SPDX-License-Identifier: BSD-3-Clause
//
// The one owner of file descriptors.  This header makes system calls, so no deciding file includes
// it.
#pragma once

#include <unistd.h>

#include <utility>

namespace ddprun {

// Owns one file descriptor and closes it.  -1 is none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  // Closes the descriptor that was owned before.
  Fd& operator=(Fd other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Gives the descriptor up to the caller, who closes it.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace ddprun
