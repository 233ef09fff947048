// SPDX-License-Identifier: BSD-3-Clause
//
// Whether the torch that a program has loaded is the one that this library was compiled with. Minor
// versions lay classes out otherwise, and a program that mixes two of them crashes or computes
// nonsense; most often an upgrade of torch in place is the cause.
#pragma once

#include <string>
#include <string_view>

namespace ddprun::ddp {

// One sentence on what is wrong and what to do, or "" where nothing is: `compiled` is "2.15",
// `version_file` the text of version.py in `folder`, the folder of the torch that is loaded.  A
// text that names no version is no reason to complain.
std::string torch_version_problem(std::string_view compiled, std::string_view version_file,
                                  const std::string& folder);

// The same of this process; throws DdpError for a problem.  Nothing is said of a torch that has no
// version.py, as one that is no Python package.
void check_loaded_torch();

}  // namespace ddprun::ddp
