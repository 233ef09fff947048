// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace ddprun::process {

// The texts of worker/process/template.py and of the files beside it, template_NAME.py.
extern const std::string_view kTemplateSource;
extern const std::string_view kTemplateMemorySource;
extern const std::string_view kTemplatePagesSource;
extern const std::string_view kTemplateProgramSource;
extern const std::string_view kTemplateRandomSource;

}  // namespace ddprun::process
