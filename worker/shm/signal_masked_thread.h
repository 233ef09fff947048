// SPDX-License-Identifier: BSD-3-Clause
//
// Starts a thread that blocks all signals, so that handlers run on the program's own threads.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace ddprun::ddp::shm {

template <class Body>
std::thread signal_masked_thread(Body body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace ddprun::ddp::shm
