// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <signal.h>

namespace ddprun {

// This thread hears all signals, whatever the process that started it had blocked.  Safe in the
// child of a process with several threads.
inline void unblock_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

// While one lives, its thread blocks all signals, and so do the threads and processes that it
// starts.  Lifetime: ended by the thread that made it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace ddprun
