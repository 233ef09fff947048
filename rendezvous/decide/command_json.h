// SPDX-License-Identifier: BSD-3-Clause
//
// What the coordinator says to a node, as JSON.
#pragma once

#include "rendezvous/decide/fields.h"
#include "rendezvous/decide/messages.h"

namespace ddprun::rendezvous {

// An object with the type of the command and its fields.
Json to_json(const Command& command);
Command read_command(Reader& reader);

}  // namespace ddprun::rendezvous
