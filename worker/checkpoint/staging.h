// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that a file is put together in: it begins at a page and ends at one, so that the disk can
// take it without another copy, and it is kept and used again, because touching new pages costs
// more than three times the copying.
#pragma once

#include <atomic>
#include <cstddef>

#include "store/base/error.h"

namespace ddprun::ddp {

inline constexpr std::size_t kPageBytes = 4096;  // also the disk's, for writing past the cache

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(Staging&& other) noexcept;
  Staging& operator=(Staging&& other) noexcept;

  // Makes room for `bytes`, whose content is then undefined, as large pages where the system has
  // them.  What was there before stays as it is when it is large enough.  Fails with the system's
  // code.
  Result<void> reserve(std::size_t bytes);

  // Has the system give every page its memory now, until `stop`; may run beside writes to it.
  void touch(const std::atomic<bool>& stop);

  char* data() { return data_; }
  const char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace ddprun::ddp
