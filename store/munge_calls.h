// SPDX-License-Identifier: BSD-3-Clause
//
// MUNGE for an event loop: munged may take ten seconds to answer, or never do.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <optional>
#include <string>

#include "store/async.h"
#include "store/auth/munge.h"
#include "store/auth/secret.h"

namespace ddprun::store {

// Threads: used from the executor's thread only.  Lifetime: calls that are under way may outlive
// it, but not its coroutines.
class MungeCalls {
 public:
  // `socket`: see Munge::load().  `secret` is this process's own, for when it is a server.
  MungeCalls(boost::asio::any_io_executor executor, std::string socket);

  // Finds out whether MUNGE serves here: seals the secret and opens it again.  Fails with
  // Errc::NotSupported where that will not change: libmunge or munged's socket is missing, or
  // munged sees another user than this process does, as in a user namespace.  Otherwise it may be
  // tried again.
  Async<void> prepare();
  bool is_ready() const { return credential_.has_value(); }

  // Once it is ready: a random secret of this process, and what others make it from.
  const Secret& secret() const { return secret_; }
  const std::string& credential() const { return *credential_; }

  // As Munge::open().  What was opened before is known.
  Async<Secret> open(std::string credential);

 private:
  boost::asio::any_io_executor executor_;
  std::string socket_;
  std::shared_ptr<const Munge> munge_;  // once libmunge is loaded
  Secret secret_ = Secret::random();
  std::optional<std::string> credential_;
  struct Opened {
    std::string credential;
    Secret secret;
  };
  std::optional<Opened> opened_;
};

}  // namespace ddprun::store
