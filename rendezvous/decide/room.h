// SPDX-License-Identifier: BSD-3-Clause
//
// How much of what nodes say of themselves is kept.  A node has one or two KB, but its join may
// have 64, and a stranger who needs no secret can be any number of nodes.
#pragma once

#include <cstddef>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/run_state.h"

namespace ddprun::rendezvous {

// Of all nodes of all runs, those that have gone included as far as they are remembered.
inline constexpr std::size_t kMaxSaidBytesOfAll = std::size_t{96} << 20;

// The memory that a node takes which has said this, roughly.
std::size_t bytes_of(const request::Join& join);
// What is kept of a node that has left, likewise.
std::size_t bytes_of(const request::Left& left);
// That all take that are in this run, or wait to be, or were.
std::size_t said_bytes(const coordinator::State& run);
// That those take that were in a run which has no node now.
std::size_t said_bytes(const coordinator::Former& former);
std::size_t said_bytes(const coordinator::Quorum& quorum);

}  // namespace ddprun::rendezvous
