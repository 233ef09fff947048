// SPDX-License-Identifier: BSD-3-Clause
//
// Which checkpoints of other runs in a directory are not this run's to remove.  Those of a run that
// is over may go in time; one that writes beside this run is alive, and keeps all that it has.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/folder_identity.h"

namespace ddprun::ddp {

// Threads: one at a time.
class OtherRuns {
 public:
  // Takes what is in `directory` now for the state in which this run begins.  Only the first call
  // counts.
  void begin(const std::filesystem::path& directory);

  // Looks at what others have written since.  Checkpoints are another run's by their run_uuid;
  // where neither has one, those that are not among `written`, which this process has published.
  // Called before each save, which may replace one.  Returns a sentence when it first sees that a
  // run is alive, else "".
  std::string look(const std::filesystem::path& directory, const std::string& run_uuid,
                   const std::vector<std::filesystem::path>& written);

  // What prune_checkpoints() has to leave alone after a save: all of the runs that are alive; and
  // after this process's first, all of every other run, which has then had time to show that it is.
  std::vector<std::filesystem::path> spared(const std::filesystem::path& directory,
                                            const std::string& run_uuid,
                                            const std::vector<std::filesystem::path>& written);

 private:
  struct Foreign {
    std::filesystem::path path;
    std::string run_uuid;
    bool is_new = false;
  };
  std::vector<Foreign> foreign_in(const std::filesystem::path& directory,
                                  const std::string& run_uuid,
                                  const std::vector<std::filesystem::path>& written) const;

  bool has_begun_ = false;
  bool has_saved_ = false;
  std::map<std::filesystem::path, FolderIdentity> seen_;  // when this run began
  std::set<std::string> alive_;                           // by run_uuid
};

}  // namespace ddprun::ddp
