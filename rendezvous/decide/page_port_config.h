// SPDX-License-Identifier: BSD-3-Clause
//
// Where a run of one node shows its pages, and to whom: values, validated by cli.
#pragma once

#include <optional>

#include "store/auth/secret.h"
#include "store/base/endpoint.h"
#include "store/decide/allow_list.h"

namespace ddprun::rendezvous {

struct PagePortConfig {
  Endpoint listen{.host = "127.0.0.1", .port = 0};  // port 0: a free one
  // Processes of this user, and of root, only; others are not let in.
  bool is_for_user_only = true;
  // Else those at these addresses, all while empty; what each sees is as at a host of several nodes
  // (SECURITY.md), with this secret or without.
  store::AllowList allow{};
  std::optional<store::Secret> secret{};
};

}  // namespace ddprun::rendezvous
