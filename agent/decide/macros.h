// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace ddprun::agent {

using Macros = std::map<std::string, std::string, std::less<>>;  // name, value

// Replaces `$name` and `${name}` by the macro's value and `$$` by `$`; an unknown name and a `$`
// that starts nothing stay as they are.  The rules of Python's string.Template.safe_substitute,
// with which torchrun treats a worker's arguments (`${local_rank}`) and the prefix of its lines.
std::string substitute(std::string_view text, const Macros& macros);

}  // namespace ddprun::agent
