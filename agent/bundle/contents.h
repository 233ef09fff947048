// SPDX-License-Identifier: BSD-3-Clause
//
// What a bundle has of this machine: the log folder, versions, an environment.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"

namespace ddprun::agent {

// Takes an entry; `remark`: what is to be said about it, if there is something.
using AddEntry = std::function<Result<void>(const std::string& name, std::string_view text,
                                            std::int64_t mtime, const std::string& remark)>;

// The files of a log folder, those that say most first, under `prefix`: of each its end.  What is
// not read is added to `notes`.  Before each file `is_wanted` is asked whether to go on.  Fails
// where the folder cannot be opened, and as `add` does.  Waits for the disk.
Result<void> add_log_folder(const std::string& folder, const std::string& prefix,
                            const AddEntry& add, std::vector<std::string>& notes,
                            const std::function<bool()>& is_wanted);

// "ddprun 1.0", kernel, C library and host, in lines.
std::string versions_text(const std::string& program);

// Sorted, with what could be a secret masked, below a first line.
std::string environment_text(const std::string& first_line,
                             const std::vector<std::string>& assignments);

}  // namespace ddprun::agent
