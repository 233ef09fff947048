// SPDX-License-Identifier: BSD-3-Clause
//
// What people are told of a host that any program which reaches its port can take part in.
#pragma once

#include <string>

#include "store/base/endpoint.h"

namespace ddprun::rendezvous {

// One line about who can take part at a store that listens at `listening` and asks for no secret;
// empty where only processes of this machine can.  `is_narrowed`: it takes only some addresses.
// `option` names the secret: "--rdzv-secret-file".
std::string describe_exposure(const Endpoint& listening, bool is_narrowed,
                              const std::string& option);

}  // namespace ddprun::rendezvous
