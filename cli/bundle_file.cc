// SPDX-License-Identifier: BSD-3-Clause
#include "cli/bundle_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iomanip>
#include <memory>
#include <new>
#include <ostream>

#include "cli/bundle_plan.h"
#include "store/base/text.h"

namespace ddprun::cli {
namespace {

constexpr int kGzip = 15 + 16;  // the largest window, and a gzip header

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

// As many bytes as there are, at most those of `text`; nullopt: they are damaged.
bool read_all(gzFile file, std::string& text) {
  std::size_t have = 0;
  while (have < text.size()) {
    auto wanted = static_cast<unsigned>(std::min<std::size_t>(text.size() - have, 1 << 20));
    int count = gzread(file, text.data() + have, wanted);
    if (count < 0) return false;
    if (count == 0) break;
    have += static_cast<std::size_t>(count);
  }
  text.resize(have);
  return true;
}

bool skip(gzFile file, std::uint64_t bytes) {
  std::string piece;
  while (bytes > 0) {
    piece.resize(std::min<std::uint64_t>(bytes, 1 << 20));
    std::size_t wanted = piece.size();
    if (!read_all(file, piece) || piece.size() != wanted) return false;
    bytes -= wanted;
  }
  return true;
}

}  // namespace

Result<BundleFile> BundleFile::create(const std::string& path, std::uint64_t max_bytes) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return system_error(errno, "make the bundle " + path);
  return BundleFile(std::move(fd), path, max_bytes);
}

BundleFile::~BundleFile() {
  if (fd_ && !is_finished_) ::unlink(path_.c_str());
}

Result<void> BundleFile::write(std::string_view bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(errno, "write the bundle " + path_);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Result<bool> BundleFile::add(std::string_view name, std::string_view text, std::int64_t mtime,
                             std::size_t reserve) {
  auto header = tar_header(name, text.size(), mtime);
  if (!header) return false;
  std::string entry = packed(header->append(text).append(tar_padding(text.size())));
  if (size_ + entry.size() + reserve + kEndBytes > max_bytes_) return false;
  auto written = write(entry);
  if (!written) return written.error();
  return true;
}

Result<void> BundleFile::finish() {
  auto written = write(packed(std::string(2 * kTarBlock, '\0')));
  if (!written) return written;
  if (::fsync(fd_.get()) != 0 && errno != EINVAL)
    return system_error(errno, "write the bundle " + path_);
  is_finished_ = true;
  return {};
}

Result<void> list_bundle(const std::string& path, std::ostream& out) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error(errno, "open " + path);
  Gzip file(gzdopen(fd.get(), "rb"));
  if (!file) throw std::bad_alloc();
  fd.release();
  const Error damaged{Errc::Protocol, path + " is no bundle, or it is damaged"};
  for (;;) {
    std::string block(kTarBlock, '\0');
    if (!read_all(file.get(), block)) return damaged;
    auto entry = read_tar_header(block);
    if (!entry) return damaged;
    if (entry->name.empty()) return {};
    out << std::setw(10) << entry->size << "  " << printable(entry->name) << '\n';
    std::uint64_t padded = entry->size + (kTarBlock - entry->size % kTarBlock) % kTarBlock;
    if (!skip(file.get(), padded)) return damaged;
  }
}

}  // namespace ddprun::cli
