// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/own_names.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <variant>

namespace ddprun::store {
namespace {

bool begins(std::string_view name, std::string_view beginning) {
  return !beginning.empty() && name.starts_with(beginning);
}

}  // namespace

bool is_for_own_only(const OwnNames& names, const Request& request) {
  return std::visit(
      [&](const auto& it) {
        using Kind = std::decay_t<decltype(it)>;
        if constexpr (std::is_same_v<Kind, request::QueuePush> ||
                      std::is_same_v<Kind, request::LastWill>) {
          return begins(it.queue, names.queues);
        } else if constexpr (std::is_same_v<Kind, request::Set>) {
          return false;
        } else if constexpr (requires { it.key; }) {
          return begins(it.key, names.keys);
        } else if constexpr (requires { it.keys; }) {
          return std::ranges::any_of(it.keys,
                                     [&](std::string_view key) { return begins(key, names.keys); });
        } else {
          return false;
        }
      },
      request);
}

}  // namespace ddprun::store
