// SPDX-License-Identifier: BSD-3-Clause
//
// What a node says to the coordinator, as JSON.
#pragma once

#include "rendezvous/decide/fields.h"
#include "rendezvous/decide/messages.h"

namespace ddprun::rendezvous {

// An object with the type of the request and its fields.
Json to_json(const Request& request);
Request read_request(Reader& reader);

}  // namespace ddprun::rendezvous
