// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's failure as it travels between nodes, and as this agent knows it: they differ in the
// types of their times and statuses only.
#pragma once

#include "agent/decide/core.h"
#include "rendezvous/decide/messages.h"

namespace ddprun::agent {

rendezvous::Failure to_message(const Failure& failure);
Failure from_message(const rendezvous::Failure& failure);

}  // namespace ddprun::agent
