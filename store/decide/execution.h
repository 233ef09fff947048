// SPDX-License-Identifier: BSD-3-Clause
//
// What each operation does.  Requests for very many names are carried out by large_request.h.
#pragma once

#include <optional>
#include <string>

#include "store/decide/budget.h"
#include "store/decide/entries.h"
#include "store/decide/last_wills.h"
#include "store/decide/outgoing.h"
#include "store/decide/queues.h"
#include "store/decide/waits.h"

namespace ddprun::store {

// What the operations work on.
struct Execution {
  const KeyspaceLimits& limits;
  Budget& budget;
  Entries& entries;
  Waits& waits;
  Queues& queues;
  LastWills& last_wills;
};

// Carries out `request`, of context.client, and appends what must be sent.  Answers why the client
// must be disconnected, if it must be; the request then had no effect.
std::optional<std::string> execute(const Request& request, const Execution& on,
                                   const Context& context);

}  // namespace ddprun::store
