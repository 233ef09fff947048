// SPDX-License-Identifier: BSD-3-Clause
//
// What a rank has called, as it stands in the shared segment: ranks that call different things are
// found by comparing these, and told which.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "worker/shm/decide/reduce.h"

namespace ddprun::ddp::shm {

enum class Collective : std::uint8_t { AllReduce, Broadcast, AllGather, Barrier };

struct Call {
  Collective collective = Collective::Barrier;
  Element element = Element::UInt8;      // of an all_reduce only
  Reduction reduction = Reduction::Sum;  // of an all_reduce only
  std::uint8_t unused = 0;
  std::int32_t root = 0;    // of a broadcast only
  std::uint64_t bytes = 0;  // that each rank gives

  friend bool operator==(const Call&, const Call&) = default;
};
static_assert(std::is_trivially_copyable_v<Call>);

// "all_reduce", "broadcast", ...
const char* name_of(Collective collective);

// "all_reduce (sum) of 10 float", "broadcast of 40 bytes from rank 1", "barrier".
std::string in_words(const Call& call);

}  // namespace ddprun::ddp::shm
