// SPDX-License-Identifier: BSD-3-Clause
#include "agent/flight_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "store/base/fd.h"

namespace ddprun::agent {
namespace {

namespace fs = std::filesystem;

// More is no dump: torch's ring has some thousands of entries.
constexpr off_t kMostBytes = off_t{1} << 30;

// A dump that was written in time; closed for what is none.  The place may be one where anybody can
// put something, and torch's reader of dumps runs what is in them: a file of another user's, a link
// or a FIFO is none.
Fd open_dump(const std::string& path, std::chrono::system_clock::time_point since) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info = {};
  if (!file || ::fstat(file.get(), &info) != 0) return Fd();
  const bool is_own = S_ISREG(info.st_mode) && info.st_uid == ::geteuid() && info.st_nlink == 1 &&
                      info.st_size <= kMostBytes;
  const bool is_new = std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec) >=
                      std::chrono::floor<std::chrono::seconds>(since);
  return is_own && is_new ? std::move(file) : Fd();
}

}  // namespace

std::string dump_prefix(const std::map<std::string, std::string, std::less<>>& environment) {
  for (const char* name : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}) {
    auto found = environment.find(name);
    if (found != environment.end() && !found->second.empty()) return found->second;
  }
  return "";
}

Result<std::vector<std::string>> copy_dumps(const DumpsWanted& wanted) {
  std::vector<std::string> copies;
  for (int rank = wanted.first_rank; rank < wanted.first_rank + wanted.count; ++rank) {
    std::string dump = wanted.prefix + std::to_string(rank);
    Fd file = open_dump(dump, wanted.since);
    if (!file) continue;
    std::error_code error;
    fs::create_directories(wanted.folder, error);
    std::string copy = wanted.folder + "/attempt_" + std::to_string(wanted.attempt) + "_rank_" +
                       std::to_string(rank);
    const std::string opened = "/proc/self/fd/" + std::to_string(file.get());
    if (!error) fs::copy_file(opened, copy, fs::copy_options::overwrite_existing, error);
    if (error) return Error{error, "copy " + dump + " to " + copy};
    copies.push_back(std::move(copy));
  }
  return copies;
}

}  // namespace ddprun::agent
