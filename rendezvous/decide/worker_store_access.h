// SPDX-License-Identifier: BSD-3-Clause
//
// Who may connect to the stores of the workers, beside the nodes of the round.
#pragma once

#include <cstdint>
#include <functional>

#include "store/decide/allow_list.h"

namespace ddprun::rendezvous {

struct WorkerStoreAccess {
  store::AllowList machines{};  // --worker-store-allow
  bool any_machine = false;     // --worker-store-allow=any
  bool any_user = false;        // --allow-users
  // Whether a process of this job runs as that user of this machine.
  std::function<bool(std::uint32_t user)> is_of_job{};
};

}  // namespace ddprun::rendezvous
