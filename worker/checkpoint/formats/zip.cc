// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace ddprun::ddp::zip {
namespace {

// The format's own numbers (PKWARE's APPNOTE 6.3.10, sections 4.3.7 to 4.3.16 and 4.5.3).
constexpr std::uint32_t kLocalMark = 0x04034b50;
constexpr std::uint32_t kCentralMark = 0x02014b50;
constexpr std::uint32_t kEndMark = 0x06054b50;
constexpr std::uint32_t kEnd64Mark = 0x06064b50;
constexpr std::uint32_t kLocator64Mark = 0x07064b50;
constexpr std::uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                        kLocator64Bytes = 20;
constexpr std::uint64_t kSumInLocal = 14, kSumInCentral = 16;
constexpr std::uint16_t kEncrypted = 1, kUtf8 = 0x800;
constexpr std::uint16_t kSizesTag = 1;     // the extra field with sizes of 64 bits
constexpr std::uint16_t kPadTag = 0x4246;  // "FB", as torch fills up to the alignment
constexpr std::uint16_t kVersion64 = 45;   // a reader must know 64-bit sizes
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint32_t k32 = 0xFFFFFFFF;  // "see the 64-bit field"
constexpr std::uint16_t k16 = 0xFFFF;

Error damaged(const std::string& sentence) {
  return Error{Errc::Protocol, "the zip archive: " + sentence};
}

// --- reading ---

// Little-endian numbers one after the other; `ok` turns false at the first that is not there.
struct Cursor {
  std::string_view bytes;
  std::uint64_t at = 0;
  bool ok = true;

  std::uint64_t number(std::uint64_t size) {
    std::string_view part = text(size);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
      value |= std::uint64_t{static_cast<unsigned char>(part[i])} << (8 * i);
    }
    return value;
  }
  std::string_view text(std::uint64_t size) {
    if (at > bytes.size() || size > bytes.size() - at) {
      ok = false;
      return {};
    }
    at += size;
    return bytes.substr(at - size, size);
  }
};

struct Directory {
  std::uint64_t count = 0;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// The 64-bit form of the archive's end, which stands before the other one.
std::optional<Directory> directory64(std::string_view file, std::uint64_t end) {
  if (end < kLocator64Bytes) return std::nullopt;
  Cursor locator{file, end - kLocator64Bytes};
  if (locator.number(4) != kLocator64Mark) return std::nullopt;
  locator.number(4);
  Cursor at{file, locator.number(8)};
  if (at.number(4) != kEnd64Mark) return std::nullopt;
  at.text(kEnd64Bytes - 4 - 24);
  Directory directory;
  directory.count = at.number(8);
  directory.bytes = at.number(8);
  directory.begin = at.number(8);
  return at.ok ? std::optional(directory) : std::nullopt;
}

std::optional<Directory> find_directory(std::string_view file) {
  if (file.size() < kEndBytes) return std::nullopt;
  const std::uint64_t last = file.size() - kEndBytes;
  const std::uint64_t first = last > k16 ? last - k16 : 0;  // a comment may follow
  for (std::uint64_t end = last + 1; end > first; --end) {
    Cursor at{file, end - 1};
    if (at.number(4) != kEndMark) continue;
    at.text(6);
    Directory directory;
    directory.count = at.number(2);
    directory.bytes = at.number(4);
    directory.begin = at.number(4);
    if (directory.count == k16 || directory.bytes == k32 || directory.begin == k32) {
      return directory64(file, end - 1);
    }
    return directory;
  }
  return std::nullopt;
}

// Replaces what does not fit into 32 bits by what the extra fields say.
bool widen(std::string_view extra, std::uint64_t& size, std::uint64_t& stored,
           std::uint64_t& local) {
  Cursor at{extra};
  while (at.ok && at.at < extra.size()) {
    const std::uint64_t tag = at.number(2);
    Cursor field{at.text(at.number(2))};
    if (!at.ok) return false;
    if (tag != kSizesTag) continue;
    if (size == k32) size = field.number(8);
    if (stored == k32) stored = field.number(8);
    if (local == k32) local = field.number(8);
    return field.ok;
  }
  return at.ok && size != k32 && stored != k32 && local != k32;
}

// One entry of the directory, and with it the header before the record.
Result<Record> read_entry(std::string_view file, Cursor& at) {
  if (at.number(4) != kCentralMark) return damaged("its directory is damaged");
  at.text(4);
  const std::uint64_t flags = at.number(2);
  const std::uint64_t method = at.number(2);
  at.text(8);
  std::uint64_t stored = at.number(4);
  std::uint64_t size = at.number(4);
  const std::uint64_t name_bytes = at.number(2);
  const std::uint64_t extra_bytes = at.number(2);
  const std::uint64_t comment_bytes = at.number(2);
  at.text(8);
  std::uint64_t local = at.number(4);
  Record record{.name = std::string(at.text(name_bytes))};
  std::string_view extra = at.text(extra_bytes);
  at.text(comment_bytes);
  const bool needs_wide = size == k32 || stored == k32 || local == k32;
  if (!at.ok || (needs_wide && !widen(extra, size, stored, local))) {
    return damaged("its directory is damaged");
  }
  if (method != 0 || size != stored || (flags & kEncrypted) != 0) {
    return damaged(
        "record '" + record.name +
        "' is compressed, which torch.save() never does; archives of TorchScript are not "
        "read");
  }
  Cursor header{file, local};
  if (header.number(4) != kLocalMark) return damaged("record '" + record.name + "' is not there");
  header.text(22);
  const std::uint64_t local_name = header.number(2);
  const std::uint64_t local_extra = header.number(2);
  header.text(local_name + local_extra);
  record.begin = header.at;
  header.text(size);
  record.end = header.at;
  if (!header.ok) return damaged("record '" + record.name + "' is longer than the file");
  return record;
}

// --- writing ---

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::uint32_t narrow(std::uint64_t value) {
  return value >= k32 ? k32 : static_cast<std::uint32_t>(value);
}

// The fields that the local header and the directory share.
void put_common(std::string& out, std::uint64_t bytes, const std::string& name,
                std::size_t extra_bytes) {
  put(out, kVersion64, 2);
  put(out, kUtf8, 2);
  put(out, 0, 2);  // stored
  put(out, 0, 4);  // no time: equal tensors make equal files
  put(out, 0, 4);  // the sum, later
  put(out, narrow(bytes), 4);
  put(out, narrow(bytes), 4);
  put(out, name.size(), 2);
  put(out, extra_bytes, 2);
}

// The header before a record, filled up so that the record begins at a multiple of 64.
std::string local_header(const NewRecord& record, std::uint64_t place) {
  std::string extra;
  if (record.bytes >= k32) {
    put(extra, kSizesTag, 2);
    put(extra, 16, 2);
    put(extra, record.bytes, 8);
    put(extra, record.bytes, 8);
  }
  std::uint64_t begin = place + kLocalBytes + record.name.size() + extra.size() + 4;
  const std::uint64_t padding = (kAlignment - begin % kAlignment) % kAlignment;
  put(extra, kPadTag, 2);
  put(extra, padding, 2);
  extra.append(padding, 'Z');

  std::string out;
  put(out, kLocalMark, 4);
  put_common(out, record.bytes, record.name, extra.size());
  return out + record.name + extra;
}

std::string directory_entry(const NewRecord& record, std::uint64_t place) {
  std::string extra;
  if (record.bytes >= k32 || place >= k32) {
    std::string sizes;
    if (record.bytes >= k32) {
      put(sizes, record.bytes, 8);
      put(sizes, record.bytes, 8);
    }
    if (place >= k32) put(sizes, place, 8);
    put(extra, kSizesTag, 2);
    put(extra, sizes.size(), 2);
    extra += sizes;
  }
  std::string out;
  put(out, kCentralMark, 4);
  put(out, kVersion64, 2);
  put_common(out, record.bytes, record.name, extra.size());
  put(out, 0, 2);  // no comment
  put(out, 0, 8);  // first disk, no attributes
  put(out, narrow(place), 4);
  return out + record.name + extra;
}

std::string archive_end(std::uint64_t count, std::uint64_t begin, std::uint64_t bytes) {
  std::string out;
  if (count >= k16 || begin >= k32 || bytes >= k32) {
    put(out, kEnd64Mark, 4);
    put(out, kEnd64Bytes - 12, 8);
    put(out, kVersion64, 2);
    put(out, kVersion64, 2);
    put(out, 0, 8);  // one disk
    put(out, count, 8);
    put(out, count, 8);
    put(out, bytes, 8);
    put(out, begin, 8);
    put(out, kLocator64Mark, 4);
    put(out, 0, 4);
    put(out, begin + bytes, 8);
    put(out, 1, 4);
  }
  const std::uint64_t narrow_count = std::min<std::uint64_t>(count, k16);
  put(out, kEndMark, 4);
  put(out, 0, 4);
  put(out, narrow_count, 2);
  put(out, narrow_count, 2);
  put(out, narrow(bytes), 4);
  put(out, narrow(begin), 4);
  put(out, 0, 2);
  return out;
}

}  // namespace

Result<std::vector<Record>> read(std::string_view file) {
  std::optional<Directory> directory = find_directory(file);
  if (!directory) return damaged("it has no end, so it is cut short or no zip archive");
  Cursor at{file, directory->begin};
  Cursor whole = at;
  whole.text(directory->bytes);
  if (!whole.ok || directory->count > directory->bytes / kCentralBytes) {
    return damaged("its directory is longer than the file");
  }
  std::vector<Record> records;
  for (std::uint64_t i = 0; i < directory->count; ++i) {
    Result<Record> record = read_entry(file, at);
    if (!record) return record.error();
    records.push_back(std::move(*record));
  }
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < records.size(); ++i) {
    if (records[i - 1].name == records[i].name) {
      return damaged("record '" + records[i].name + "' is there twice");
    }
  }
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (std::size_t i = 1; i < records.size(); ++i) {
    if (records[i].begin < records[i - 1].end) {
      return damaged("records '" + records[i - 1].name + "' and '" + records[i].name + "' overlap");
    }
  }
  return records;
}

Layout lay_out(const std::vector<NewRecord>& records) {
  Layout layout;
  std::uint64_t place = 0;
  std::string directory;
  std::vector<std::uint64_t> in_directory;
  for (const NewRecord& record : records) {
    layout.fragments.push_back({place, local_header(record, place)});
    layout.sums.push_back({.local = place + kSumInLocal});
    in_directory.push_back(directory.size() + kSumInCentral);
    directory += directory_entry(record, place);
    const std::uint64_t begin = place + layout.fragments.back().bytes.size();
    place = begin + record.bytes;
    layout.records.push_back({record.name, begin, place});
  }
  for (std::size_t i = 0; i < records.size(); ++i) layout.sums[i].central = place + in_directory[i];
  std::string end = archive_end(records.size(), place, directory.size());
  layout.fragments.push_back({place, directory + end});
  layout.file_bytes = place + layout.fragments.back().bytes.size();
  return layout;
}

void complete(const Layout& layout, char* file) {
  for (const Fragment& fragment : layout.fragments) {
    std::memcpy(file + fragment.place, fragment.bytes.data(), fragment.bytes.size());
  }
  for (std::size_t i = 0; i < layout.records.size(); ++i) {
    const Record& record = layout.records[i];
    std::string sum;
    put(sum,
        ::crc32_z(0, reinterpret_cast<const unsigned char*>(file + record.begin),
                  record.end - record.begin),
        4);
    std::memcpy(file + layout.sums[i].local, sum.data(), sum.size());
    std::memcpy(file + layout.sums[i].central, sum.data(), sum.size());
  }
}

}  // namespace ddprun::ddp::zip
