// SPDX-License-Identifier: BSD-3-Clause
//
// CRC-32C (Castagnoli), the checksum of a checkpoint's files: processors with SSE 4.2 compute it
// at several GB/s, which a disk does not outrun.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddprun::ddp {

// Continues `crc` (0 at the start) over `size` bytes.
std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size);

// The sum of two parts in a row, of which the second has `second_bytes`, from the sum of each.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

// The sum of `size` bytes, by several threads where that is quicker.
std::uint32_t parallel_crc32c(const void* data, std::size_t size);

// As crc32c(), without the processor's help; for tests and other processors.
std::uint32_t crc32c_portable(std::uint32_t crc, const void* data, std::size_t size);

}  // namespace ddprun::ddp
