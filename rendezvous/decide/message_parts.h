// SPDX-License-Identifier: BSD-3-Clause
//
// The parts that requests and commands have in common, as JSON.  What is wrong in a part is noted
// in the Reader that it is read from, and limits are kept.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/decide/fields.h"
#include "rendezvous/decide/messages.h"
#include "store/base/endpoint.h"

namespace ddprun::rendezvous {

inline constexpr int kMaxPeriods = 1'000'000;  // Policy::keep_alive_max_attempt

Json to_json(const Endpoint& endpoint);
Endpoint read_endpoint(Reader& parent, const char* name);

// In the field "after", which may be left out.
Json to_json(const std::vector<Unsettled>& after);
std::vector<Unsettled> read_after(Reader& reader);

// At most `most` addresses of machines.
std::vector<std::string> read_addresses(Reader& reader, const char* name, std::size_t most);

// What stopped a node; an older agent does not say.
int read_signal(Reader& reader);

// In the field "loss", which is left out of LossKind::Other.
void put_loss(Json& json, LossKind loss);
LossKind read_loss(Reader& reader);

}  // namespace ddprun::rendezvous
