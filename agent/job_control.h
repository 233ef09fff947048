// SPDX-License-Identifier: BSD-3-Clause
//
// Ctrl-Z and fg.  The workers have sessions of their own, which the terminal's SIGTSTP does not
// reach, and in which the kernel would not let it stop them.  So the agent stops them by SIGSTOP,
// then itself by SIGTSTP as the shell expects, and when it is continued continues them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/signal_set.hpp>
#include <functional>

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: stop() must have been called, and the executor have run since, before the destructor.
class JobControl {
 public:
  // `signal_workers` sends a signal to all workers that run.
  JobControl(boost::asio::any_io_executor executor, std::function<void(int signal)> signal_workers);

  // From now on SIGTSTP stops the job.  Where the starting program ignores it, it stays ignored.
  void start();

  void stop() { signals_.cancel(); }

 private:
  void wait();
  void stop_until_continued();

  boost::asio::signal_set signals_;
  std::function<void(int signal)> signal_workers_;
};

}  // namespace ddprun::agent
