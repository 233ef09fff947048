// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "worker/checkpoint/formats/parallel_for.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace ddprun::ddp {
namespace {

// Sums are polynomials over GF(2) modulo Castagnoli's, with the coefficient of x^0 in the highest
// bit.  Appending n bytes of zeros to a text multiplies its sum by x^(8n).
constexpr std::uint32_t kPolynomial = 0x82F63B78;
constexpr std::uint32_t kOne = 0x80000000;   // x^0
constexpr std::uint32_t kByte = 0x00800000;  // x^8

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (int i = 0; i < 32; ++i) {
    sum ^= b & (0U - ((a >> (31 - i)) & 1U));
    b = (b >> 1) ^ (kPolynomial & (0U - (b & 1U)));
  }
  return sum;
}

constexpr std::uint32_t zeros(std::uint64_t bytes) {
  std::uint32_t power = kOne;
  for (std::uint32_t square = kByte; bytes != 0; bytes >>= 1) {
    if (bytes & 1) power = product(power, square);
    square = product(square, square);
  }
  return power;
}

#if defined(__x86_64__)
// The instruction takes three cycles and can begin in each, so three texts are summed at once: the
// thirds of a block that stays in the processor's cache.
constexpr std::size_t kThirdBytes = 8192;
constexpr std::uint32_t kThirdZeros = zeros(kThirdBytes);

std::uint64_t word_at(const unsigned char* data) {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

// clang counts the instruction as a feature of its own.
__attribute__((target("sse4.2,crc32"))) std::uint32_t crc32c_sse42(std::uint32_t crc,
                                                                   const unsigned char* data,
                                                                   std::size_t size) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::uint64_t state = static_cast<std::uint32_t>(~crc);
  for (; size >= 3 * kThirdBytes; data += 3 * kThirdBytes, size -= 3 * kThirdBytes) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kThirdBytes; i += kWord) {
      state = _mm_crc32_u64(state, word_at(data + i));
      second = _mm_crc32_u64(second, word_at(data + kThirdBytes + i));
      third = _mm_crc32_u64(third, word_at(data + 2 * kThirdBytes + i));
    }
    state = product(kThirdZeros, static_cast<std::uint32_t>(state)) ^ second;
    state = product(kThirdZeros, static_cast<std::uint32_t>(state)) ^ third;
  }
  for (; size >= kWord; data += kWord, size -= kWord) state = _mm_crc32_u64(state, word_at(data));
  auto tail = static_cast<std::uint32_t>(state);
  for (; size > 0; ++data, --size) tail = _mm_crc32_u8(tail, *data);
  return ~tail;
}
#endif

// What a byte in the low bits of a sum becomes when eight zeros are appended.
constexpr std::array<std::uint32_t, 256> kOfByte = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) table[byte] = product(kByte, byte);
  return table;
}();

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t crc, const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t state = ~crc;
  for (std::size_t i = 0; i < size; ++i) {
    state = kOfByte[(state ^ bytes[i]) & 0xFFU] ^ (state >> 8);
  }
  return ~state;
}

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42) return crc32c_sse42(crc, static_cast<const unsigned char*>(data), size);
#endif
  return crc32c_portable(crc, data, size);
}

std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  return product(zeros(second_bytes), first) ^ second;
}

std::uint32_t parallel_crc32c(const void* data, std::size_t size) {
  static constexpr std::size_t kPartBytes = 4 << 20;
  const auto* bytes = static_cast<const char*>(data);
  std::vector<std::uint32_t> sums((size + kPartBytes - 1) / kPartBytes);
  auto part_bytes = [size](std::size_t i) { return std::min(kPartBytes, size - i * kPartBytes); };
  parallel_for(sums.size(), memory_threads(),
               [&](std::size_t i) { sums[i] = crc32c(0, bytes + i * kPartBytes, part_bytes(i)); });
  std::uint32_t whole = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    whole = crc32c_joined(whole, sums[i], part_bytes(i));
  }
  return whole;
}

}  // namespace ddprun::ddp
