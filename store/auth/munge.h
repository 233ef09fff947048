// SPDX-License-Identifier: BSD-3-Clause
//
// MUNGE (https://dun.github.io/munge/), the service by which the machines of a Slurm cluster know
// each other's users: a credential that only one user's processes can open, on any machine that has
// the cluster's key.  libmunge is loaded when it is needed, since other machines lack it.
#pragma once

#include <memory>
#include <string>

#include "store/auth/secret.h"
#include "store/base/error.h"

namespace ddprun::store {

// Threads: any.  Calls block for as long as the machine's munged takes: a fraction of a millisecond
// as a rule, ten seconds where it stands still.
class Munge {
 public:
  // With the munged at `socket`, or where libmunge looks for it if that is empty.  Fails with
  // Errc::NotSupported where libmunge is not installed, or that socket is not there.
  static Result<Munge> load(const std::string& socket);

  // A text from which open() makes `secret` in a process of this process's user, and nobody else
  // does.  Fails with Errc::Closed where no munged answers.
  Result<std::string> seal(const Secret& secret) const;

  // Fails with Errc::Protocol where the text is no such credential, or another user has made it;
  // with Errc::Closed where no munged answers.
  Result<Secret> open(const std::string& credential) const;

  ~Munge();
  Munge(Munge&&) noexcept;
  Munge& operator=(Munge&&) noexcept;

 private:
  struct Library;

  explicit Munge(std::unique_ptr<Library> library);

  std::unique_ptr<Library> library_;
};

}  // namespace ddprun::store
