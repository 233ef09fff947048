// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace ddprun::process {

// The texts of worker/process/template.py and template_memory.py.
extern const std::string_view kTemplateSource;
extern const std::string_view kTemplateMemorySource;

}  // namespace ddprun::process
