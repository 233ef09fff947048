// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace ddprun::process {

// The text of worker/process/template.py.
extern const std::string_view kTemplateSource;

}  // namespace ddprun::process
