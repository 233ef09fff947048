// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes as the files of a checkpoint.  scripts/fuzz builds and runs it.
//
// The first byte says which reader gets the rest: a whole file of tensors of either format, a
// pickle alone, a manifest, or which rank has written what.  What is read must lie within the file,
// and can be copied out.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "store/base/check.h"
#include "worker/checkpoint/formats/file_layout.h"
#include "worker/checkpoint/formats/manifest.h"
#include "worker/checkpoint/formats/pickle.h"
#include "worker/checkpoint/formats/shards.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ddprun;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 5 == 4) {
    Result<ddp::Shards> shards = ddp::parse_shards(rest);
    if (!shards) return 0;
    check(ddp::parse_shards(ddp::to_json(*shards)).has_value(), "written, read");
    check(ddp::merge_shards({*shards}).has_value(), "of one rank");
    return 0;
  }
  if (data[0] % 5 == 3) {
    Result<ddp::Manifest> manifest = ddp::parse_manifest(rest);
    if (manifest) check(ddp::parse_manifest(ddp::to_json(*manifest)).has_value(), "written, read");
    return 0;
  }
  if (data[0] % 5 == 2) {
    (void)ddp::pickle::read(rest);
    return 0;
  }
  Result<ddp::StoredTensors> read = ddp::read_tensors(rest);
  if (!read) return 0;
  for (const ddp::StoredTensor& tensor : read->tensors) {
    check(tensor.begin <= tensor.end && tensor.end <= rest.size(), "a tensor outside its file");
    std::optional<std::uint64_t> bytes = ddp::byte_count(tensor.dtype, tensor.shape);
    check(bytes && *bytes <= rest.size(), "a tensor larger than its file");
    std::string copy(*bytes, '\0');
    copy_row_major(tensor, rest, copy.data());
  }
  return 0;
}
