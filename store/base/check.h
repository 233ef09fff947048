// SPDX-License-Identifier: BSD-3-Clause
//
// check(): the third kind of error, a bug of ours.  It stays on in release builds, says where and
// what, and aborts, because state that must not exist is worse for a running job than an end with
// a reason.  Expected outcomes are data, operational failures are Result<T>; see base/error.h.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace ddprun {

// Aborts, with the place and `what` on stderr, unless `condition` holds.
inline void check(bool condition, const char* what = "check failed",
                  std::source_location where = std::source_location::current()) {
  if (condition) [[likely]]
    return;
  std::fprintf(stderr, "%s:%u: %s: bug in ddprun: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), where.function_name(), what);
  std::abort();
}

}  // namespace ddprun
