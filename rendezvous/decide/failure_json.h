// SPDX-License-Identifier: BSD-3-Clause
//
// As JSON: the failure of a worker, what it waited for, and what nodes have found out about that.
#pragma once

#include "rendezvous/decide/failure.h"
#include "rendezvous/decide/fields.h"
#include "rendezvous/decide/findings.h"

namespace ddprun::rendezvous {

// Texts without a limit are cut, so that a failure fits into a message.
Json to_json(const Failure& failure);
Failure read_failure(Reader& parent, const Json& json);

Json to_json(const TimedOutWait& wait);
TimedOutWait read_wait(Reader& parent, const Json& json);

Json to_json(const Findings& findings);
Findings read_findings(Reader& reader);

}  // namespace ddprun::rendezvous
