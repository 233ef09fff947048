// SPDX-License-Identifier: BSD-3-Clause
//
// Tells a program that cannot start from one that has crashed.  The former would fail in the same
// way again, so no restart is spent on it.  Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "agent/decide/worker_exit.h"
#include "store/base/error.h"
#include "store/base/exit_status.h"
#include "store/base/time.h"

namespace ddprun::agent {

// The first seconds: a Python that has to import torch from a slow disk gets that far in them.
inline constexpr Duration kStartLimit = std::chrono::seconds(20);

// Why a restart is of no use, as a clause ("the script was not found: ..."), or nullopt.  In doubt,
// which includes every round but the run's first and everything after kStartLimit, nullopt: the
// worker is restarted, as torchrun does.  Recognised are exit codes 126 and 127 (a shell's or
// env's), and by what was said last: Python's missing script or module, its SyntaxError, and
// argparse's usage. What was said is quoted, as printable() does. `uptime` is the time from its
// start to its end, `round` the number of its round.
std::optional<std::string> start_failure(const WorkerExit& exit, Duration uptime,
                                         std::uint64_t round);

// Why no restart may follow by the user's own list (--no-restart-exit-codes), or nullopt.
// `codes` are as a shell shows them: 128 + n for signal n.
std::optional<std::string> excluded_from_restart(const process::ExitStatus& status,
                                                 const std::set<int>& codes);

// The run's exit code when a worker's program cannot be started, as a shell gives it: there is none
// (127), it may not be executed (126).  kExitInfrastructure where it is not the program's fault: no
// memory, no more processes.
int exit_code_of_start(const Error& error);

// A worker that lives shorter than this has died young.
inline constexpr Duration kYoung = std::chrono::seconds(5);

// How long to wait before the next restart, when the last `young_deaths` attempts in a row have
// died young: not at all up to the tenth, then 100 ms, doubling up to 10 s.  An attempt that lived
// longer sets the count back to 0.
Duration restart_delay(int young_deaths);

}  // namespace ddprun::agent
