// SPDX-License-Identifier: BSD-3-Clause
//
// Names in a reserved namespace that belong to the process of the server.  Pure.
#pragma once

#include <string>

#include "store/decide/wire.h"

namespace ddprun::store {

// How the names begin, as clients of c10d write them; empty: there are none.
struct OwnNames {
  std::string queues{};  // others take items from them, and put none in
  std::string keys{};    // others set them, and do not learn what they hold
};

// Whether another client than the process itself must not ask for this.
bool is_for_own_only(const OwnNames& names, const Request& request);

}  // namespace ddprun::store
