// SPDX-License-Identifier: BSD-3-Clause
//
// How a process that stems from one of this agent's workers is known, in whatever session it is and
// whichever parent it has by now.  Two marks are inherited over fork, exec, setsid and double
// forks:
//
//   DDPRUN_AGENT in its environment; a list, since a ddprun may run below another one
//   a soft RLIMIT_MSGQUEUE that is lower than it was, by a random number and at most by half
//
// The second is still there in what has cleared its environment; it hardly has an effect, since
// training programs use few POSIX message queues or none.  A process that sets that limit itself
// and clears its environment has neither.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::process {

// The variable that has the first mark.  That of an agent above this one stands before it, with a
// comma between them.
inline constexpr const char* kGuardianVariable = "DDPRUN_AGENT";

struct Marks {
  std::string name;                          // in DDPRUN_AGENT
  std::optional<std::uint64_t> queue_limit;  // nullopt: this system does not let us set one
};

// Marks this process, so that all that it starts is marked.  Under another agent (`inherited`, this
// process's own DDPRUN_AGENT) the limit is left as it is: it is that agent's mark, and its
// workers'.
Marks mark_this_process(const std::string& inherited);

// The marks for a sweep of this process's own descendants: the limit is what this process has,
// no matter which program has set it.
Marks marks_of_descendants(const Marks& marks);

// Whether the living process `pid` has one of the marks.  The limit is looked at first: to read the
// environment of a process that stands in the kernel may take for ever.
bool carries(pid_t pid, const Marks& marks);

// The same of one mark.
bool carries_limit(pid_t pid, const Marks& marks);
bool carries_name(pid_t pid, const Marks& marks);

// Whether `environ`, the text of /proc/PID/environ, has `mark` in its DDPRUN_AGENT.
bool has_mark(std::string_view environ, std::string_view mark);

// The soft limit of message queues in the text of /proc/PID/limits; nullopt for "unlimited".
std::optional<std::uint64_t> parse_queue_limit(std::string_view limits);

// DDPRUN_AGENT for what this process starts.
std::string guardian_variable(const std::string& inherited, const Marks& marks);

// Whether /proc has the numbers of this process's own namespace.  A process that was started in a
// new one may see the /proc of the outer one, where the same number is another process.
bool is_own_proc(const std::string& proc = "/proc");

}  // namespace ddprun::process
