// SPDX-License-Identifier: BSD-3-Clause
#include "agent/flight_recorder.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

namespace ddprun::agent {
namespace {

namespace fs = std::filesystem;

// A dump that was written in time; not a link or a FIFO, which anybody may have put there.
bool is_dump(const std::string& path, std::chrono::system_clock::time_point since) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  return std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec) >=
         std::chrono::floor<std::chrono::seconds>(since);
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
    if (!is_dump(dump, wanted.since)) continue;
    std::error_code error;
    fs::create_directories(wanted.folder, error);
    std::string copy = wanted.folder + "/attempt_" + std::to_string(wanted.attempt) + "_rank_" +
                       std::to_string(rank);
    if (!error) fs::copy_file(dump, copy, fs::copy_options::overwrite_existing, error);
    if (error) return Error{error, "copy " + dump + " to " + copy};
    copies.push_back(std::move(copy));
  }
  return copies;
}

}  // namespace ddprun::agent
