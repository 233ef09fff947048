// SPDX-License-Identifier: BSD-3-Clause
//
// What goes into a bundle for those who look at a run later, and in which form.  Pure; agent/bundle
// reads the files, for the agent of a node and for ddpctl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::agent {

// Of a log so much is taken, its end; of another file all, or, if it is larger, its end.
inline constexpr std::size_t kMaxEntryBytes = std::size_t{1} << 20;

// "NAME=value" without what could be a secret: the value of a name that looks like one's
// (…TOKEN…, …SECRET…, …KEY…, …PASSWORD…, …CREDENTIAL…), and passwords in URLs, become "***".
std::string masked(std::string_view assignment);

// Files of a log folder, by their paths in it.  Those that say most come first: reports, error
// files and stacks, then what workers wrote to stderr, then the rest.
struct LogFile {
  std::string path;
  std::uint64_t size = 0;
  std::int64_t mtime = 0;  // Unix time; of the same kind the newest comes first
};
void sort_by_use(std::vector<LogFile>& files);

// Whether a name of an entry, as another machine has written it, leads nowhere but below where it
// is put, and can be shown.
bool is_plain_path(std::string_view path);

// A name of a machine as a folder's.
std::string as_folder_name(std::string_view host);

// The header of an entry of a tar file, and what follows its `size` bytes.  nullopt: the name is
// too long for it.
std::optional<std::string> tar_header(std::string_view name, std::size_t size, std::int64_t mtime);
std::string tar_padding(std::size_t size);
inline constexpr std::size_t kTarBlock = 512;

// What a header says; nullopt: it is none.  An end of the file is a header without a name.
struct TarEntry {
  std::string name;
  std::uint64_t size = 0;
  std::int64_t mtime = 0;
};
std::optional<TarEntry> read_tar_header(std::string_view block);

}  // namespace ddprun::agent
