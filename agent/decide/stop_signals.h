// SPDX-License-Identifier: BSD-3-Clause
//
// Signals that ask this node to stop, one after the other. What the first does while the run lives
// is core's to say; here is which of them are worth a line, and what follows where this node's part
// of the run is over already.
#pragma once

#include <chrono>

#include "store/base/time.h"

namespace ddprun::agent {

class StopSignals {
 public:
  struct Effect {
    bool is_told = false;  // no more of what was sent at once, to this process and to its group
    bool leaves = false;   // this node only hosts for the others: it says that it goes
    bool closes = false;   // asked again, and a second later: it waits for nobody
  };

  // `is_finished`: the run has ended for this node, and it is there for the others only.
  Effect heard(int signal, MonoTime now, bool is_finished);

  // The last one that came when the run was over; 0 for none.
  int late() const { return late_; }

  // Where all nodes are told to stop, the end of the run may be heard of before the signal: then
  // the exit code is the signal's.  `exit_code` is that of the run's end.
  int exit_code(int exit_code, bool are_others_signalled) const;

 private:
  // `timeout`, a terminal and wrappers send one signal to a process and to its group.
  static constexpr Duration kOneSending = std::chrono::milliseconds(100);

  int first_ = 0;
  MonoTime first_at_{};
  int late_ = 0;
};

}  // namespace ddprun::agent
