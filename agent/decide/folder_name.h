// SPDX-License-Identifier: BSD-3-Clause
//
// How the log folder of a run is called: <run>_<random>, and ddprun_<run>_<random> where no folder
// was named for it.
#pragma once

#include <string>
#include <string_view>

namespace ddprun::agent {

// The name before the random part.  A run id is the user's text: what would leave the folder, or
// hide it, becomes '_', and of a long one the beginning counts.
std::string folder_name_of(std::string run_id, bool is_temporary);

// Whether a folder of this name may be one of the run's.
bool is_folder_of(std::string_view folder, const std::string& run_id);

}  // namespace ddprun::agent
