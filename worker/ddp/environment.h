// SPDX-License-Identifier: BSD-3-Clause
//
// The one place where the runtime reads the environment of its process (worker/ENVIRONMENT.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "worker/checkpoint/formats/manifest.h"

namespace ddprun::ddp {

// nullopt when it is not set.
std::optional<std::string> environment_variable(std::string_view name);

// The generation of this process, for programs that make no ProcessGroup of ours; an empty one
// where no ddprun has started it.
Generation generation_in_environment();

}  // namespace ddprun::ddp
