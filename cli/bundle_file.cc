// SPDX-License-Identifier: BSD-3-Clause
#include "cli/bundle_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <iomanip>
#include <ostream>

#include "agent/bundle/archive.h"
#include "store/base/file.h"
#include "store/base/text.h"

namespace ddprun::cli {

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
  int error_number = write_all(fd_.get(), bytes);
  if (error_number != 0) return system_error(error_number, "write the bundle " + path_);
  return {};
}

std::uint64_t BundleFile::room(std::size_t reserve) const {
  std::uint64_t taken = size_ + reserve + agent::kArchiveEndBytes;
  return taken < max_bytes_ ? max_bytes_ - taken : 0;
}

Result<bool> BundleFile::add(std::string_view name, std::string_view text, std::int64_t mtime,
                             std::size_t reserve) {
  auto entry = agent::packed_entry(name, text, mtime);
  if (!entry || entry->size() > room(reserve)) return false;
  auto written = write(*entry);
  if (!written) return written.error();
  return true;
}

Result<void> BundleFile::finish() {
  auto written = write(agent::packed_end());
  if (!written) return written;
  if (::fsync(fd_.get()) != 0 && errno != EINVAL)
    return system_error(errno, "write the bundle " + path_);
  is_finished_ = true;
  return {};
}

Result<void> list_bundle(const std::string& path, std::ostream& out) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error(errno, "open " + path);
  auto list = [&out](const agent::TarEntry& entry, const std::string&) -> Result<void> {
    out << std::setw(10) << entry.size << "  " << printable(entry.name) << '\n';
    return {};
  };
  return agent::read_archive(std::move(fd), path, {}, list);
}

}  // namespace ddprun::cli
