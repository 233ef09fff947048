// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace ddprun::process {

// The texts of worker/process/template.py, template_memory.py and template_pages.py.
extern const std::string_view kTemplateSource;
extern const std::string_view kTemplateMemorySource;
extern const std::string_view kTemplatePagesSource;

}  // namespace ddprun::process
