// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/environment.h"

#include <cstdlib>

#include "store/base/number.h"

namespace ddprun::ddp {

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

Generation generation_in_environment() {
  const auto round = number_in<int>(environment_variable("DDPRUN_ROUND").value_or(""));
  if (!round) return {};
  return {.run_uuid = environment_variable("DDPRUN_RUN_UUID").value_or(""), .round = *round};
}

}  // namespace ddprun::ddp
