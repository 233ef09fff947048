// SPDX-License-Identifier: BSD-3-Clause
#include "cli/print.h"

#include <cerrno>
#include <cstdio>
#include <iostream>

namespace ddprun::cli {

Result<void> print(std::string_view text) {
  errno = 0;  // stays so if the stream has failed before
  std::cout << text << std::flush;
  bool has_arrived = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (has_arrived) return {};
  if (errno == 0) return Error{Errc::Closed, "cannot write to stdout"};  // an earlier write failed
  return system_error(errno, "write to stdout");
}

}  // namespace ddprun::cli
