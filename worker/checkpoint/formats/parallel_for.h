// SPDX-License-Identifier: BSD-3-Clause
//
// Work on memory and files by a few threads at once, for as long as one call takes.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace ddprun::ddp {

// The processors that this process may use, at most 4: more do not make one memory faster.
int memory_threads();

// Calls `work(i)` once for each i below `count`, in any order, by up to `threads` threads, the
// caller among them; returns when all are done.  Where the system gives no thread, those there are
// do the rest.  REQUIRES: `work` does not throw.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

struct Copy {
  char* to;
  const char* from;
  std::size_t bytes;
};

// Makes all `copies`, none of which overlap, at the speed of the memory; what is large goes past
// the processor's caches, which the program goes on using.
void copy_all(const std::vector<Copy>& copies);

}  // namespace ddprun::ddp
