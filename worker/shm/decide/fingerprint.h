// SPDX-License-Identifier: BSD-3-Clause
//
// The fingerprint of a collective, as each rank writes it into the shared segment.  If two ranks
// differ, the error names both collectives.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "worker/shm/decide/reduce.h"

namespace ddprun::ddp::shm {

enum class Collective : std::uint8_t { AllReduce, Broadcast, AllGather, Barrier, Reduce, Gather };

struct Fingerprint {
  Collective collective = Collective::Barrier;
  Element element = Element::UInt8;      // of an all_reduce or a reduce
  Reduction reduction = Reduction::Sum;  // of an all_reduce or a reduce
  std::int32_t root = 0;                 // of a broadcast, a reduce or a gather
  std::uint64_t bytes = 0;               // that each rank gives

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};
static_assert(std::is_trivially_copyable_v<Fingerprint>);

// "all_reduce", "broadcast", ...
const char* name_of(Collective collective);

// "all_reduce (sum) of 10 float", "broadcast of 40 bytes from rank 1", "barrier".
std::string describe(const Fingerprint& fingerprint);

}  // namespace ddprun::ddp::shm
