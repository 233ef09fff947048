// SPDX-License-Identifier: BSD-3-Clause
//
// What an agent must know of the scheduler that runs its job: whom its signals reach, and how to
// find out why it sends them.  Values; cli/config makes them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/time.h"
#include "worker/stop_reason.h"

namespace ddprun::agent {

// Whom a signal of the scheduler reaches, as far as its configuration tells.
enum class SignalReach : std::uint8_t {
  Agent,         // the agent alone
  EveryProcess,  // the agent, the workers and all that they have started
  Unknown,
};

// A signal from outside the run.
struct OutsideRequest {
  int signal = 0;
  bool is_stop = true;  // it ends the run; else it is only passed on to the workers
};

// The command that says what becomes of the job.  Where the machine lacks the program, nothing is
// asked.
struct SchedulerQuestion {
  std::string program;  // a name, looked up in PATH
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // on top of the agent's own, as "NAME=value"
  Duration delay{};  // before it is asked, so that not all nodes of a large job ask at once
};

struct Scheduler {
  std::string name;  // for sentences
  SignalReach reach = SignalReach::Unknown;
  // The program that sends its signals: its name in /proc/PID/comm.
  std::string sender;
  // It sends SIGTERM more than once before SIGKILL, so that a second one is no sign of impatience.
  bool repeats_sigterm = false;
  std::optional<SchedulerQuestion> question{};
  // Why a signal has come, by what is known of the job and by `answer`, the output of the question:
  // empty before it is answered, or where nothing usable came.  Required.
  std::function<worker::StopReason(OutsideRequest request, WallTime now, std::string_view answer)>
      reason_of;
};

// Why a signal has come, where no scheduler is known: "ended from outside by SIGTERM".
worker::StopReason plain_reason_of(OutsideRequest request);

}  // namespace ddprun::agent
