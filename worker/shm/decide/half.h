// SPDX-License-Identifier: BSD-3-Clause
//
// Half types to float and back, rounded to the nearest and of two to the even one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ddprun::ddp::shm {

// IEEE binary16.  The many are converted by the processor where it can.
float float_of_half(std::uint16_t bits);
std::uint16_t half_of_float(float value);
void floats_of_halves(const std::uint16_t* from, std::size_t count, float* to);
void halves_of_floats(const float* from, std::size_t count, std::uint16_t* to);

// bfloat16: the upper half of a float.
inline float float_of_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t bfloat_of_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return static_cast<std::uint16_t>(is_nan ? 0x7FC0 : rounded);
}

}  // namespace ddprun::ddp::shm
