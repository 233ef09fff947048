// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/decide/half.h"

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ddprun::ddp::shm {
namespace {

#if defined(__x86_64__)
bool has_f16c() {
  static const bool has = __builtin_cpu_supports("f16c") != 0;
  return has;
}

// Both return how many they have converted: a multiple of eight.
__attribute__((target("avx,f16c"))) std::size_t widen(const std::uint16_t* from, std::size_t count,
                                                      float* to) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  return i;
}

__attribute__((target("avx,f16c"))) std::size_t narrow(const float* from, std::size_t count,
                                                       std::uint16_t* to) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  return i;
}
#else
bool has_f16c() {
  return false;
}
std::size_t widen(const std::uint16_t*, std::size_t, float*) {
  return 0;
}
std::size_t narrow(const float*, std::size_t, std::uint16_t*) {
  return 0;
}
#endif

constexpr std::uint32_t kSign = 0x80000000;
constexpr std::uint32_t kInfinity = 0x7F800000;

}  // namespace

float float_of_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1F;
  const std::uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0) {  // a multiple of the smallest there is, 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  if (exponent == 0x1F) {  // infinity, or a NaN that stays quiet
    const std::uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | kInfinity | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t half_of_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rest = bits & ~kSign;
  const auto sign = static_cast<std::uint16_t>((bits & kSign) >> 16);
  std::uint32_t half = 0;
  if (rest > kInfinity) {
    half = 0x7E00 | ((rest >> 13) & 0x3FF);
  } else if (rest >= 0x47800000) {  // 65536 and more
    half = 0x7C00;
  } else if (rest < 0x38800000) {  // below 2^-14: the sum's last bit is worth 2^-24
    const float shifted = std::bit_cast<float>(rest) + 0.5F;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  } else {  // rounding may carry into the exponent, and from there into infinity
    const std::uint32_t is_odd = (rest >> 13) & 1;
    half = (rest - (112U << 23) + 0xFFF + is_odd) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

void floats_of_halves(const std::uint16_t* from, std::size_t count, float* to) {
  std::size_t i = has_f16c() ? widen(from, count, to) : 0;
  for (; i < count; ++i) to[i] = float_of_half(from[i]);
}

void halves_of_floats(const float* from, std::size_t count, std::uint16_t* to) {
  std::size_t i = has_f16c() ? narrow(from, count, to) : 0;
  for (; i < count; ++i) to[i] = half_of_float(from[i]);
}

}  // namespace ddprun::ddp::shm
