// SPDX-License-Identifier: BSD-3-Clause
//
// Where something comes from that a client has pushed onto a queue: a line behind it, which the
// server writes and no client can, since it is always the last.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddprun::store {

// `host` is a numeric address.
std::string stamped(std::string_view item, std::string_view host);

// Takes the stamp off, and answers the address; nothing, and `item` stays as it is, where there is
// none.
std::optional<std::string> take_stamp(std::string& item);

}  // namespace ddprun::store
