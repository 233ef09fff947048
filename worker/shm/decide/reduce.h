// SPDX-License-Identifier: BSD-3-Clause
//
// The arithmetic of an all-reduce.  The ranks' values are taken in the order of the ranks, so the
// result depends on nothing else: not on timing, the chunk that an element fell into, or who adds.
// Half types are added up in float and rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ddprun::ddp::shm {

enum class Element : std::uint8_t {
  Float32,
  Float64,
  Float16,
  BFloat16,
  Int8,
  UInt8,
  Int16,
  Int32,
  Int64,
};

// Min and Max hand a NaN through, as LibTorch's do.  Sums and products of integers wrap around.
enum class Reduction : std::uint8_t { Sum, Mean, Product, Min, Max };

std::size_t bytes_of(Element element);
const char* name_of(Element element);
const char* name_of(Reduction reduction);

// A mean of integers is not ours to round.
bool is_supported(Element element, Reduction reduction);

// Writes to `out`, for each of the elements that lie in `bytes`, the reduction over `sources`.
// `out` may be one of the sources; all begin at a multiple of the element's size.
void reduce(Element element, Reduction reduction, std::span<const std::byte* const> sources,
            std::size_t bytes, std::byte* out);

}  // namespace ddprun::ddp::shm
