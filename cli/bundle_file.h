// SPDX-License-Identifier: BSD-3-Clause
//
// A bundle on the disk: an archive (agent/bundle/archive.h) of bounded size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::cli {

class BundleFile {
 public:
  // Makes the file, for this user only.  Fails where there is one of this name already.
  static Result<BundleFile> create(const std::string& path, std::uint64_t max_bytes);
  BundleFile(BundleFile&&) = default;
  // Removes it, unless finish() has succeeded.
  ~BundleFile();

  // Whether there was room for it beside `reserve` bytes; if not, the file is as before.
  Result<bool> add(std::string_view name, std::string_view text, std::int64_t mtime,
                   std::size_t reserve);
  // The end of the tar file.
  Result<void> finish();

  std::uint64_t size() const { return size_; }
  // What is left beside `reserve` bytes.
  std::uint64_t room(std::size_t reserve) const;

 private:
  BundleFile(Fd fd, std::string path, std::uint64_t max_bytes)
      : fd_(std::move(fd)), path_(std::move(path)), max_bytes_(max_bytes) {}
  Result<void> write(std::string_view bytes);

  Fd fd_;
  std::string path_;
  std::uint64_t max_bytes_;
  std::uint64_t size_ = 0;
  bool is_finished_ = false;
};

// The names and sizes of what is in a bundle.  Fails where it is none, or damaged.
Result<void> list_bundle(const std::string& path, std::ostream& out);

}  // namespace ddprun::cli
