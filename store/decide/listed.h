// SPDX-License-Identifier: BSD-3-Clause
//
// A name in the answer to LIST_KEYS.
#pragma once

#include <string>
#include <string_view>

#include "store/decide/value.h"
#include "store/decide/wire.h"

namespace ddprun::store {

// A long name as bytes of the answer's own, which Outbox::held_bytes() counts.
inline Reply listed(std::string_view name) {
  if (name.size() <= kCopiedBytes) return reply::Bytes{Value(name)};
  return reply::Run{std::string(Value(name).framed())};
}

}  // namespace ddprun::store
