// SPDX-License-Identifier: BSD-3-Clause
//
// Which munged the nodes of a Slurm cluster use.
#pragma once

#include <optional>
#include <string>

namespace ddprun::cli {

// The socket in "AuthInfo=socket=PATH,..." of slurm.conf's text, if that could be read; empty:
// where libmunge looks for it.
std::string munge_socket(const std::optional<std::string>& slurm_conf);

}  // namespace ddprun::cli
