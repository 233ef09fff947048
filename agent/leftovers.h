// SPDX-License-Identifier: BSD-3-Clause
//
// Ends what the workers have left behind, and keeps the list of the children that no sweep ends.
#pragma once

#include <spdlog/fwd.h>
#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "store/base/time.h"
#include "worker/process/sweep.h"

namespace ddprun::agent {

// As process::sweep(), bound to a reaper.
using Sweep = std::function<boost::asio::awaitable<process::SweepResult>(
    const MonoTime& deadline, process::SweepScope scope)>;

// Threads: used from the event loop's only thread.
class Leftovers {
 public:
  // `scope`: what was below this process before its workers; nullptr: all below it is theirs.
  Leftovers(Sweep sweep, std::shared_ptr<const process::SweepScope> scope,
            std::shared_ptr<spdlog::logger> logger);

  // The guardian.
  std::set<pid_t>& spared() { return spared_; }

  // Nothing ends `pid`, a process below this one: it is left alone while it lives.
  void leave(pid_t pid);

  // When SIGKILL follows SIGTERM, in the next end() and in a running one.
  void set_deadline(MonoTime deadline) { deadline_ = deadline; }

  // The workers that have got a signal to end; none at the start of others.
  void set_asked(process::AskedGroups asked) { asked_ = std::move(asked); }

  // Ends them.  `ending`: pids that end by themselves, or are ended by others.  `helpers`:
  // likewise, with all that is in the sessions that they lead.
  boost::asio::awaitable<process::SweepResult> end(std::set<pid_t> ending, std::set<pid_t> helpers);

  // Waits until torch's managers of shared memory, which end() leaves alone, have ended by
  // themselves; those that have not after kShmManagerLimit get SIGKILL.
  boost::asio::awaitable<void> wait_for_shm_managers();

  // Logs what was found.  Returns what does not end, not even by SIGKILL, as a sentence; it is
  // spared from now on.  "" for nothing.
  std::string tell(const process::SweepResult& result);

 private:
  process::SweepScope whole_scope() const;
  std::set<pid_t> spared_now();
  boost::asio::awaitable<void> tell_what_stays(process::SweepScope scope);

  Sweep sweep_;
  std::shared_ptr<const process::SweepScope> scope_;
  std::shared_ptr<spdlog::logger> logger_;
  std::set<pid_t> spared_;
  // By when each was started: its pid may be another process's after its end.
  std::map<pid_t, std::uint64_t> left_alone_;
  process::AskedGroups asked_;
  MonoTime deadline_{};  // of the running sweep, which reads it anew at each look
};

}  // namespace ddprun::agent
