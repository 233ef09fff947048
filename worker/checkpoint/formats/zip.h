// SPDX-License-Identifier: BSD-3-Clause
//
// The part of the zip format that torch.save() uses: records that are stored as they are, at
// places that a reader can map into memory.  zip libraries do not say where a record lies, nor
// place it at a multiple of 64, which is what the format is used for here.
//
// What is read is taken for hostile: every place is checked against the file before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"

namespace ddprun::ddp::zip {

// A record's bytes: [begin, end) of the file.
struct Record {
  std::string name;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend bool operator==(const Record&, const Record&) = default;
};

// The records of `file`, by place.  Fails with Errc::Protocol: it is no zip file, or cut short, a
// record is compressed or encrypted, lies outside the file or on another one, or a name is there
// twice.
Result<std::vector<Record>> read(std::string_view file);

// Bytes that belong at `place` of a file.
struct Fragment {
  std::uint64_t place = 0;
  std::string bytes;
};

// A zip file to be: everything in it but the records' bytes.
struct Layout {
  std::uint64_t file_bytes = 0;
  std::vector<Record> records;
  std::vector<Fragment> fragments;

  // Where the CRC-32 of each record belongs, twice for each; 0 in the fragments.
  struct SumPlaces {
    std::uint64_t local = 0;
    std::uint64_t central = 0;
  };
  std::vector<SumPlaces> sums;
};

// Lays out records of these names and lengths, each at a multiple of 64.
struct NewRecord {
  std::string name;
  std::uint64_t bytes = 0;
};
Layout lay_out(const std::vector<NewRecord>& records);

// Writes everything but the records' bytes into `file`, which has them by now.
void complete(const Layout& layout, char* file);

}  // namespace ddprun::ddp::zip
