// SPDX-License-Identifier: BSD-3-Clause
//
// The dumps of NCCL's flight recorder (TORCH_FR_DUMP_ON_TIMEOUT), which torch writes when a
// collective is over its time: one file a rank, under a name that the next attempt overwrites.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "store/base/error.h"

namespace ddprun::agent {

// What the names of the dumps begin with, where the workers' environment says that; the rank
// follows.  Empty where it does not: torch's own place is not looked at.
std::string dump_prefix(const std::map<std::string, std::string, std::less<>>& environment);

struct DumpsWanted {
  std::string prefix;
  int first_rank = 0;
  int count = 0;                                // of the ranks of this node
  std::chrono::system_clock::time_point since;  // older ones are of an attempt or run before
  std::string folder;                           // where the copies go; made if there is a dump
  int attempt = 0;
};

// Copies those that are files of this process's user as FOLDER/attempt_N_rank_R, and returns the
// paths of the copies.  Fails with the path and the system's reason; dumps that were copied before
// that stay.  Waits for the disk.
Result<std::vector<std::string>> copy_dumps(const DumpsWanted& wanted);

}  // namespace ddprun::agent
