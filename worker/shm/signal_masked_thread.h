// SPDX-License-Identifier: BSD-3-Clause
//
// A thread that takes none of the program's signals: handlers run where the program expects them.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace ddprun::ddp::shm {

template <class Body>
std::thread quiet_thread(Body body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace ddprun::ddp::shm
