// SPDX-License-Identifier: BSD-3-Clause
//
// What a hosting machine keeps of a run in a small file: that workers of a round may be alive.  A
// coordinator that begins there, after the process before it was killed, reads it, and forms no
// round before those workers are dead.  rendezvous/run_files.h has the files.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "store/base/error.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

struct RunFile {
  std::string run;
  std::string run_uuid;
  std::uint64_t round = 0;       // the last that began
  Duration lease{};              // of its workers: the silence limit and the grace
  std::set<std::string> nodes;   // that are in it, without their incarnation
  std::string by{};              // RoundId::by
  std::set<std::string> left{};  // of the nodes, those that have left since, with dead workers
};

std::string encode(const RunFile& file);

// Fails with Errc::Protocol and what is wrong with `text`.
Result<RunFile> decode_run_file(std::string_view text);

// What the file of a run is called, among those of one endpoint: its id may be long, and hold what
// a file's name cannot.
std::string run_file_name(std::string_view run);

}  // namespace ddprun::rendezvous
