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

// The same without the processor's help; for tests and other processors.
std::uint32_t crc32c_portable(std::uint32_t crc, const void* data, std::size_t size);

}  // namespace ddprun::ddp
