// SPDX-License-Identifier: BSD-3-Clause
//
// The types of NVIDIA's library for monitoring, as its own header has them, which need not be
// installed.
#pragma once

namespace ddprun::agent::nvml {

using Device = void*;

// Version 2 of its list of processes.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
inline constexpr unsigned long long kNotKnown = ~0ULL;  // of used_bytes

struct Memory {
  unsigned long long total, free, used;
};

struct Utilization {
  unsigned gpu, memory;
};

inline constexpr int kSuccess = 0;

}  // namespace ddprun::agent::nvml
