// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

namespace ddprun::store {

// Gives memory back to the system after much has been deleted; free() alone keeps it.
class MemoryKeeper {
 public:
  // Also lets malloc keep a few MiB before it gives memory back on its own.  Otherwise it does so
  // with every large reply that has been sent: a seventh of the time of a MULTI_GET.
  MemoryKeeper();

  // `bytes` is what is stored now.
  void give_back(std::size_t bytes);

  // Gives the pages back that lie in `piece`, which stays allocated; what it holds is lost.
  static void give_back_pages(std::span<char> piece);

 private:
  std::size_t most_bytes_ = 0;  // that were stored since memory was last given back
};

}  // namespace ddprun::store
