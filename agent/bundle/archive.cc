// SPDX-License-Identifier: BSD-3-Clause
#include "agent/bundle/archive.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <new>

namespace ddprun::agent {
namespace {

constexpr int kGzip = 15 + 16;  // the largest window, and a gzip header
constexpr std::size_t kStep = std::size_t{1} << 20;

// `text` as a gzip member.
std::string packed(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    throw std::bad_alloc();
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct CloseGzip {
  void operator()(gzFile file) const { gzclose(file); }
};
using Gzip = std::unique_ptr<gzFile_s, CloseGzip>;

// As many bytes as there are, at most those of `text`; false: they are damaged.
bool read_all(gzFile file, std::string& text) {
  std::size_t have = 0;
  while (have < text.size()) {
    auto wanted = static_cast<unsigned>(std::min<std::size_t>(text.size() - have, kStep));
    int count = gzread(file, text.data() + have, wanted);
    if (count < 0) return false;
    if (count == 0) break;
    have += static_cast<std::size_t>(count);
  }
  text.resize(have);
  return true;
}

bool read_whole(gzFile file, std::string& text) {
  std::size_t wanted = text.size();
  return read_all(file, text) && text.size() == wanted;
}

bool skip(gzFile file, std::uint64_t bytes) {
  std::string piece;
  while (bytes > 0) {
    piece.resize(std::min<std::uint64_t>(bytes, kStep));
    if (!read_whole(file, piece)) return false;
    bytes -= piece.size();
  }
  return true;
}

}  // namespace

std::optional<std::string> packed_entry(std::string_view name, std::string_view text,
                                        std::int64_t mtime) {
  auto header = tar_header(name, text.size(), mtime);
  if (!header) return std::nullopt;
  return packed(header->append(text).append(tar_padding(text.size())));
}

std::string packed_end() {
  return packed(std::string(2 * kTarBlock, '\0'));
}

Result<void> read_archive(Fd fd, const std::string& name, const ReadLimits& limits,
                          const OnArchiveEntry& on_entry) {
  Gzip file(gzdopen(fd.get(), "rb"));
  if (!file) throw std::bad_alloc();
  fd.release();
  const Error damaged{Errc::Protocol, name + " is no bundle, or it is damaged"};
  for (;;) {
    std::string block(kTarBlock, '\0');
    if (!read_all(file.get(), block)) return damaged;
    auto entry = read_tar_header(block);
    if (!entry) return damaged;
    if (entry->name.empty()) return {};
    if (entry->size > limits.entry) return damaged;
    std::string text(std::min(entry->size, limits.text), '\0');
    std::uint64_t padded = entry->size + (kTarBlock - entry->size % kTarBlock) % kTarBlock;
    if (!read_whole(file.get(), text) || !skip(file.get(), padded - text.size())) return damaged;
    auto taken = on_entry(*entry, std::move(text));
    if (!taken) return taken;
  }
}

}  // namespace ddprun::agent
