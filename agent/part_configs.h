// SPDX-License-Identifier: BSD-3-Clause
//
// What the parts of an agent need of its configuration.
#pragma once

#include "agent/agent.h"

namespace ddprun::agent {

EventContext event_context(const AgentConfig& config);

StopReasonFileConfig stop_file_config(const AgentConfig& config);

// With the environment of the workers, where py-spy or eu-stack may be on the PATH.
StackReaderConfig stack_config(const AgentConfig& config);

HangMonitorConfig hang_config(const AgentConfig& config);

// What is sampled is what the rendezvous can use.
VitalsConfig vitals_config(const AgentConfig& config, const rendezvous::Handler& rendezvous);

}  // namespace ddprun::agent
