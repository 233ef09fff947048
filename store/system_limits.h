// SPDX-License-Identifier: BSD-3-Clause
//
// What the system allows a server: how many connections it may hold, and how many may queue up.
#pragma once

#include <cstddef>
#include <optional>

namespace ddprun::store {

// Lets this process have as many descriptors open as its hard limit allows, up to about a million:
// each client of a server is one.  Programs that this process starts inherit the limit unless they
// are given the former one back (worker/process/spawn does): some are slow under a large one, and
// select() is not made for it.
void raise_file_limit();

// So many descriptors this process may have open.
std::size_t file_limit();

// How many connections the kernel keeps for a listening socket until they are accepted; more have
// to try again, after one second at first.  None where the system does not say.
std::optional<std::size_t> longest_backlog();

// The memory of this machine, or of the container that this process is in: in bytes.
std::size_t memory_size();

}  // namespace ddprun::store
