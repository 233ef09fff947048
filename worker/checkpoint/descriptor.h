// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

namespace ddprun::ddp {

// A file descriptor that is closed on the way out; below 0: none.
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

}  // namespace ddprun::ddp
