// SPDX-License-Identifier: BSD-3-Clause
//
// Starts one worker.  How a worker comes into being is known here and in worker/process/template
// (a fork of an interpreter that has imported torch already), and nowhere else: both return the
// same StartingProcess.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::process {

using Environment = std::map<std::string, std::string, std::less<>>;  // values by name

// The variables as "NAME=value", in the order of their names.
std::vector<std::string> to_assignments(const Environment& environment);

// The value of PATH; empty where there is none.
std::string search_path_of(const Environment& environment);

struct ProcessSpec {
  std::vector<std::string> argv;  // argv[0]: a path, or a name that find_program() has resolved
  std::vector<std::string> environment;  // all of it, as "NAME=value"
  int stdout_fd = -1;                    // becomes the process's stdout; -1: inherited
  int stderr_fd = -1;                    // likewise
  std::vector<int> cpus;                 // that it may run on; empty: where the caller may
  std::string cgroup;                    // the folder of the one to put it in; empty: the caller's
  // Become its descriptors kFirstOfMore, and so on; none for a worker.
  std::vector<int> more_fds{};
  static constexpr int kFirstOfMore = 4;
};

// A started process.  The pidfd becomes readable when it has ended; the pid stays its own until
// Reaper has collected the status.
struct Process {
  pid_t pid = -1;
  Fd pidfd;
};

// Starts `spec` and returns once the program runs, or with the reason why it cannot: the exec's own
// errno and the program's path as context.
//
// The process leads a session and process group of its own (so that one signal reaches what it
// starts, and the terminal's Ctrl-C reaches only the agent), has no signal blocked, SIGPIPE and
// SIGXFSZ at their defaults, no descriptor beyond 0, 1, 2, and is killed when this process dies.
// The last holds for the *thread* that called spawn(): call it from the agent's only thread.
Result<Process> spawn(const ProcessSpec& spec);

// A process that has been forked.  An exec may take long: the kernel reads the program from a disk.
struct StartingProcess {
  Process process;
  Fd report;             // becomes readable when the program runs, or cannot
  std::string context;   // for report_of()
  bool is_fork = false;  // of a template: see report_of_fork()
};

// The same without waiting for the exec, so that many start at once and the caller goes on.  To be
// ended by report_of() when `report` is readable or the process has ended.  A process that could
// not become its program ends with exit code 127; the caller collects it, as any other.
Result<StartingProcess> begin_spawn(const ProcessSpec& spec);

// Sends `signal` to the group of a process that was begun so and is not reaped yet.  One that was
// forked just now does not lead its group yet, and gets it alone.
void signal_group(pid_t leader, int signal);

// Whether the program runs (or has ended without a word), or why it cannot.  Waits for that.
Result<void> report_of(const Fd& report, const std::string& context);

// The same of a process that says a 0 when it begins: one that has ended without a word never has.
Result<void> report_of_fork(const Fd& report, const std::string& context);

// Resolves a program's name as a shell does: a name with a slash is itself, any other is looked up
// in `search_path` (the value of PATH).  Fails with Errc::InvalidInput and a sentence where there
// is no such file, or none that this user may execute, or whose first line names what is missing.
Result<std::string> find_program(const std::string& name, std::string_view search_path);

}  // namespace ddprun::process
