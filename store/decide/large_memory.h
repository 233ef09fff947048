// SPDX-License-Identifier: BSD-3-Clause
//
// Memory of values.  The system takes 60 ms to take back a GiB, so what has kLargeMemory and more
// is given back step by step: who uses such values calls give_back_some() between turns.
//
// Threads: each has its own; what is left at its end is given back then.
#pragma once

#include <cstddef>

namespace ddprun::store {

inline constexpr std::size_t kLargeMemory = std::size_t{32} << 20;
inline constexpr std::size_t kGivenBackAtOnce = std::size_t{8} << 20;

// As operator new and operator delete; both are told the same `bytes`.
void* allocate_memory(std::size_t bytes);
void release_memory(void* memory, std::size_t bytes);

// What has been released and not been given back.
std::size_t bytes_to_give_back();
void give_back_some();

}  // namespace ddprun::store
