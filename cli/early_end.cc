// SPDX-License-Identifier: BSD-3-Clause
#include "cli/early_end.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>

namespace ddprun::cli {
namespace {

std::array<char, PATH_MAX> folder{};

// Only what is safe in a signal handler.
void end(int signal) {
  ::rmdir(folder.data());
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  ::raise(signal);  // takes effect when this handler returns
}

}  // namespace

void remove_at_early_end(const std::string& path) {
  if (path.size() >= folder.size()) return;
  std::ranges::copy(path, folder.begin());
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    struct sigaction current = {};
    bool is_default = ::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_DFL;
    struct sigaction action = {};
    action.sa_handler = end;
    if (is_default) ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace ddprun::cli
