// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/folder_name.h"

#include <algorithm>
#include <cstddef>

namespace ddprun::agent {

std::string folder_name_of(std::string run_id, bool is_temporary) {
  constexpr std::size_t kMostOfRunId = 128;
  std::replace(run_id.begin(), run_id.end(), '/', '_');
  if (run_id.starts_with('.')) run_id[0] = '_';
  return (is_temporary ? "ddprun_" : "") + run_id.substr(0, kMostOfRunId);
}

bool is_folder_of(std::string_view folder, const std::string& run_id) {
  const std::string_view name = folder.substr(0, folder.rfind('_'));
  return name == folder_name_of(run_id, false) || name == folder_name_of(run_id, true);
}

}  // namespace ddprun::agent
