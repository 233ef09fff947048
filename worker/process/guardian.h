// SPDX-License-Identifier: BSD-3-Clause
//
// What remains when the agent is killed with SIGKILL.  The kernel ends the workers then
// (parent-death signal), but not what they had started, and nobody is left to look for it below the
// agent in /proc.  A guardian, a small process forked before anything else, waits for the agent's
// end and kills every process that carries one of the agent's two marks:
//
//   DDPRUN_AGENT in its environment; a list, since a ddprun may run below another one
//   a soft RLIMIT_MSGQUEUE that is a little, and by a random number, lower than it was
//
// Both are inherited over fork, exec, setsid and double forks.  The second is still there in what
// has cleared its environment; nobody sees its effect, since training programs use no POSIX message
// queues.  What sets that limit itself and clears its environment escapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::process {

// The variable that marks everything a worker starts; its value is mark() of the agent's guardian.
// That of an agent above this one stands before it, with a comma between them.
inline constexpr const char* kGuardianVariable = "DDPRUN_AGENT";

// A signal that came to the guardian, and from whom (0: from outside of its pid namespace).
struct SignalReport {
  int signal = 0;
  int sender = 0;
};

// Threads: to be started while this process has one thread.
// Lifetime: when it is destroyed the guardian goes without doing anything.  A process that is
// forked from this one and does not exec must not keep it.
class Guardian {
 public:
  // Marks this process, so that all it starts is marked, and forks the guardian.  It has a session
  // of its own and no open descriptor but its end of a pipe.  `inherited` is this process's own
  // DDPRUN_AGENT: under another agent it is that one's second mark which holds.  Fails with the
  // system's code; the run can go on without it.
  static Result<Guardian> start(const std::string& inherited = "");

  Guardian(Guardian&&) = default;
  Guardian& operator=(Guardian&&) = default;
  ~Guardian();

  const std::string& mark() const { return mark_; }
  int pid() const { return pid_; }

  // The end of a pipe with a SignalReport of each signal that reaches the guardian, which none of
  // them ends.  It lives in a session of its own like the workers, so what reaches it unasked was
  // sent to them, too.  To be taken once.
  Fd take_reports() { return std::move(reports_); }

 private:
  Guardian(std::string mark, Fd pipe, Fd reports, int pid)
      : mark_(std::move(mark)), pipe_(std::move(pipe)), reports_(std::move(reports)), pid_(pid) {}

  std::string mark_;
  Fd pipe_;  // its end of file, without a word before, is the agent's death
  Fd reports_;
  int pid_;
};

// Whether `environ`, the text of /proc/PID/environ, has `mark` in its DDPRUN_AGENT.
bool has_mark(std::string_view environ, std::string_view mark);

// The soft limit of message queues in the text of /proc/PID/limits; nullopt for "unlimited".
std::optional<std::uint64_t> parse_queue_limit(std::string_view limits);

}  // namespace ddprun::process
