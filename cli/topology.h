// SPDX-License-Identifier: BSD-3-Clause
//
// Reads the machine's topology for cli/config/numa from /sys and /proc.  It loads no CUDA library.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/config/numa.h"
#include "store/base/error.h"

namespace ddprun::cli {

// The GPUs of NVIDIA's driver in the order of their PCI addresses, narrowed and ordered by
// `visible` (the value of CUDA_VISIBLE_DEVICES, where set) as the CUDA runtime does: up to the
// first entry that is no device.  Numbers, UUIDs and MIG instances are understood.  Empty without a
// driver.  `root` stands before /proc and /sys; it is empty but in tests.
std::vector<Gpu> visible_gpus(const std::string& root, const std::optional<std::string>& visible);

// `allowed` are the CPUs that this process may run on.  Fails with the file that is missing, or
// with what is missing on this machine.
Result<Topology> read_topology(const std::string& root, const std::vector<int>& allowed,
                               const std::optional<std::string>& visible);

}  // namespace ddprun::cli
