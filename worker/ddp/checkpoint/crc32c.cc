// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/crc32c.h"

#include <boost/crc.hpp>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace ddprun::ddp {
namespace {

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::uint32_t crc,
                                                             const unsigned char* data,
                                                             std::size_t size) {
  std::uint64_t state = ~crc;
  for (; size >= sizeof(std::uint64_t); data += sizeof(std::uint64_t)) {
    std::uint64_t word;
    std::memcpy(&word, data, sizeof word);
    state = _mm_crc32_u64(state, word);
    size -= sizeof word;
  }
  auto tail = static_cast<std::uint32_t>(state);
  for (; size > 0; ++data, --size) tail = _mm_crc32_u8(tail, *data);
  return ~tail;
}
#endif

// Bits of `value` in the opposite order: Boost takes a start value unreflected.
std::uint32_t reflected(std::uint32_t value) {
  std::uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result |= ((value >> i) & 1U) << (31 - i);
  return result;
}

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t crc, const void* data, std::size_t size) {
  boost::crc_optimal<32, 0x1EDC6F41, 0, 0xFFFFFFFF, true, true> state(reflected(~crc));
  state.process_bytes(data, size);
  return state.checksum();
}

std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42) return crc32c_sse42(crc, static_cast<const unsigned char*>(data), size);
#endif
  return crc32c_portable(crc, data, size);
}

}  // namespace ddprun::ddp
