// SPDX-License-Identifier: BSD-3-Clause
//
// Sleeping on a word of shared memory until another process wakes it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ddprun::ddp::shm {

using Deadline = std::chrono::steady_clock::time_point;

// Sleeps while `word` is `expected`, until woken or `deadline`; may wake spuriously.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline deadline);

// Wakes all threads of all processes that sleep on `word`.
void futex_wake(std::atomic<std::uint32_t>& word);

}  // namespace ddprun::ddp::shm
