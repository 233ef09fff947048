// SPDX-License-Identifier: BSD-3-Clause
//
// Scripts that teach a shell ddprun's options, made from the table of options.
#pragma once

#include <string>
#include <string_view>

#include "store/base/error.h"

namespace ddprun::cli {

// The script for `shell` (bash, zsh, fish or tcsh).  Fails with Errc::InvalidInput for any other.
Result<std::string> completion(std::string_view shell);

}  // namespace ddprun::cli
