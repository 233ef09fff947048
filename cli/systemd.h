// SPDX-License-Identifier: BSD-3-Clause
//
// A daemon's side of systemd's two small protocols: sockets that are passed to it already
// listening (sd_listen_fds(3)), and messages about its state (sd_notify(3)).  Without systemd the
// variables are not set, and everything here does nothing.
#pragma once

#include <optional>
#include <string>

#include "store/base/error.h"
#include "store/base/fd.h"
#include "store/socket.h"

namespace ddprun::cli {

// Takes the listening socket that was passed, if one was, and makes it close-on-exec.  The
// variables are removed, so that no child takes it for its own.  Fails with Errc::InvalidInput
// where there are several, or LISTEN_FDS is no number.
Result<std::optional<Fd>> take_passed_socket();

// Where to tell of this process's state.
class Notifier {
 public:
  // Reads and removes NOTIFY_SOCKET.
  Notifier();

  // Sends lines such as "READY=1".  It waits for no answer, and a failure is no failure of ours.
  void tell(const std::string& lines) const;

 private:
  std::string path_;  // empty where systemd has not asked
};

}  // namespace ddprun::cli
