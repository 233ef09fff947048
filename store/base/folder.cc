// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace ddprun {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder,
                                                         std::error_code& error) {
  std::vector<std::filesystem::directory_entry> entries;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    entries.push_back(*entry);
  return entries;
}

// A second descriptor, since one has a place up to which it is read.
std::vector<std::string> names_in(int folder, std::size_t most, std::error_code& error,
                                  const std::function<bool(std::string_view)>& is_wanted) {
  std::vector<std::string> names;
  int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  std::unique_ptr<DIR, CloseFolder> entries(own < 0 ? nullptr : ::fdopendir(own));
  if (!entries) {
    error.assign(errno, std::system_category());
    if (own >= 0) ::close(own);
    return names;
  }
  error.clear();
  while (names.size() < most) {
    errno = 0;
    const dirent* entry = ::readdir(entries.get());
    if (entry == nullptr) {
      error.assign(errno, std::system_category());
      break;
    }
    std::string_view name = entry->d_name;
    if (name != "." && name != ".." && is_wanted(name)) names.emplace_back(name);
  }
  return names;
}

}  // namespace ddprun
