// SPDX-License-Identifier: BSD-3-Clause
//
// The failures of a run and the restarts that they have cost.  A value with no clock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

struct Restarts {
  int count = 0;                      // worker failures so far
  std::vector<Failure> failures;      // those that led to a restart, and the last one
  std::optional<MonoTime> failed_at;  // of the failure that the present stop is about
  std::string failed_on;              // the node where it happened
  // The run's end by that failure, unless it turns out that the loss of a node has caused it.
  std::optional<command::End> end_in_doubt;

  // Keeps the failure.  Of earlier ones less and less: an End must fit into a message.
  void record(const Failure& failure);

  // The failure costs a restart, or the run's end unless the loss of a node has caused it.
  void spend(const std::string& node, MonoTime now);
  void end_unless_lost(const std::string& node, MonoTime now, command::End verdict);

  // The loss of a node has caused the failure: it costs no restart.
  void take_back();
};

}  // namespace ddprun::rendezvous::coordinator
