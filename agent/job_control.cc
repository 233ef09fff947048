// SPDX-License-Identifier: BSD-3-Clause
#include "agent/job_control.h"

#include <signal.h>

#include <utility>

namespace ddprun::agent {

JobControl::JobControl(boost::asio::any_io_executor executor,
                       std::function<void(int signal)> signal_workers)
    : signals_(std::move(executor)), signal_workers_(std::move(signal_workers)) {}

void JobControl::start() {
  struct sigaction current = {};
  bool is_ignored = ::sigaction(SIGTSTP, nullptr, &current) == 0 && current.sa_handler == SIG_IGN;
  if (is_ignored) return;
  signals_.add(SIGTSTP);
  wait();
}

void JobControl::wait() {
  signals_.async_wait([this](boost::system::error_code error, int) {
    if (error) return;
    stop_until_continued();
    wait();
  });
}

void JobControl::stop_until_continued() {
  signal_workers_(SIGSTOP);
  signals_.remove(SIGTSTP);  // back to its default action
  // Returns when a shell continues us, or at once where none could: in an orphaned group.
  ::raise(SIGTSTP);
  signals_.add(SIGTSTP);
  signal_workers_(SIGCONT);
}

}  // namespace ddprun::agent
