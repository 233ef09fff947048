// SPDX-License-Identifier: BSD-3-Clause
//
// Keeps a template beside the workers (worker/process/template.h), from which those of a restart
// are forked, and as many forks as there are workers, which wait for the restart.  If asked to, it
// makes the template before the first attempt, whose workers are then forked from it too.  Whatever
// goes wrong costs a line, and that restart is as any other.
#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/warm_learning.h"
#include "store/base/fd.h"
#include "store/base/time.h"
#include "worker/process/reaper.h"
#include "worker/process/template.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper.  end() must have completed, or the event loop have ended, before
// the destructor runs.
class WarmRestarts {
 public:
  using Say = std::function<void(const std::string&)>;
  struct Parts {
    std::vector<std::string> imports;             // that the user has named
    std::vector<std::string> variables;           // that are different in each worker
    bool has_first_attempt = false;               // it is forked, too
    std::function<std::vector<pid_t>()> workers;  // that run now
    Say on_info;
    Say on_warning;
  };
  WarmRestarts(boost::asio::any_io_executor executor, process::Reaper& reaper, Parts parts);

  // The workers of `specs` run: a template is made, where there is none and one is of use.
  void workers_run(const std::vector<process::ProcessSpec>& specs);

  // Forks a process for each of `specs` and calls `then` once, perhaps before it returns: with all
  // of them, or with none, and a line has said why.  The first call makes the template and waits
  // for it, if the first attempt is to be forked; another one meanwhile waits in its place.
  using Then = std::function<void(std::vector<process::Fork>)>;
  void fork(const std::vector<process::ProcessSpec>& specs, Then then);

  // A worker has ended, so that a restart may follow: looks beforehand whether files have changed.
  void expect_restart();

  // A fork did not become a worker, for this reason: there will be no others.
  void rule_out(const std::string& why);

  // The session of the templates and of the forks that wait; 0 once nothing is in it.
  pid_t session() const { return session_; }

  // Ends the template, and waits for its end; there will be no other.
  boost::asio::awaitable<void> end();

 private:
  enum class State : std::uint8_t { None, Importing, Ready, Off };

  void make(const std::vector<process::ProcessSpec>& specs);
  void park();
  void fork_now(const std::vector<process::ProcessSpec>& specs, Then then);
  void fork_waiting();
  void watch_first(Duration passed);
  void raise_priority_later();
  process::Template* idle_template() const;
  void learned(std::unique_ptr<process::Template> next, pid_t pid, const std::string& text);
  void refused(const std::string& why);
  void ended(pid_t pid, process::ExitStatus status);
  void cold(const std::string& why);
  std::vector<process::Process> kill();
  void kill_unwatched();
  void look_at_session();

  boost::asio::any_io_executor executor_;
  process::Reaper& reaper_;
  Parts parts_;
  State state_ = State::None;
  int starts_ = 0;
  int workers_ = 0;  // that a restart starts
  bool is_ending_ = false;
  process::TemplateSpec spec_;  // of the template
  std::unique_ptr<process::Template> template_;
  std::string ready_text_;  // of the template; "" once it is said, which is when its forks wait
  std::vector<process::ProcessSpec> waiting_specs_;  // of the fork() that waits for the template
  Then waiting_;                                     // likewise; nullptr for none
  std::string why_none_;  // there is no template, as the last one has said; "" for nothing
  pid_t pid_ = 0;         // of the template; 0 for none
  pid_t session_ = 0;
  boost::asio::steady_timer priority_timer_;
  boost::asio::steady_timer first_timer_;
  MonoTime made_at_{};            // the template
  std::function<void()> on_end_;  // of the process; nullptr: nobody waits for it
  WarmLearning learning_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::agent
