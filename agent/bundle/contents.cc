// SPDX-License-Identifier: BSD-3-Clause
#include "agent/bundle/contents.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "agent/bundle/log_folder.h"
#include "agent/decide/bundle_plan.h"
#include "store/base/text.h"

namespace ddprun::agent {

Result<void> add_log_folder(const std::string& path, const std::string& prefix, const AddEntry& add,
                            std::vector<std::string>& notes,
                            const std::function<bool()>& is_wanted) {
  Result<LogFolder> folder = LogFolder::open(path);
  if (!folder) return folder.error();
  notes.push_back(prefix + " is " + folder->path());
  std::vector<LogFile> files = folder->files(notes);
  sort_by_use(files);
  for (const LogFile& file : files) {
    if (!is_wanted()) {
      notes.push_back("not read, since it took too long: " + file.path + ", ...");
      return {};
    }
    Result<std::string> text = folder->end_of(file.path, kMaxEntryBytes);
    if (!text) {
      notes.push_back("not read: " + file.path + ": " + to_string(text.error()));
      continue;
    }
    bool is_end = file.size > kMaxEntryBytes;
    auto added =
        add(prefix + '/' + file.path, *text, file.mtime,
            is_end ? "the last MB of " + std::to_string(file.size) + " bytes" : std::string());
    if (!added) return added;
  }
  return {};
}

std::string versions_text(const std::string& program) {
  utsname system{};
  ::uname(&system);
  std::array<char, 64> library{};  // "glibc 2.36"
  ::confstr(_CS_GNU_LIBC_VERSION, library.data(), library.size());
  return program + "\nkernel " + std::string(system.release) + " " + system.machine + "\n" +
         library.data() + "\nhost " + system.nodename + "\n";
}

std::string environment_text(const std::string& first_line,
                             const std::vector<std::string>& assignments) {
  std::vector<std::string> lines;
  for (const std::string& each : assignments) lines.push_back(printable(masked(each)));
  std::ranges::sort(lines);
  std::string text = first_line + '\n';
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

}  // namespace ddprun::agent
