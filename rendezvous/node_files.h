// SPDX-License-Identifier: BSD-3-Clause
//
// The node files (decide/node_file.h) of one run on this machine.  They are in its memory, where a
// write waits for no disk, and go with it.  Each is locked as long as its agent lives: the kernel
// of this machine, and no other, says which of them has died.
#pragma once

#include <cstddef>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/decide/node_file.h"
#include "store/base/error.h"
#include "store/base/fd.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

// As a whole or not at all; what stands at `path` already stays.
void write_last_word(const std::string& path, std::string_view text);

class NodeFiles {
 public:
  static constexpr std::size_t kFewFiles = 64;

  // Of the node `name` of `run`.  Nothing is kept where `folder` is empty, cannot be made, or is
  // not this user's alone.  What agents of other runs that died a day ago have left there is
  // removed; that is looked for once in an hour.
  NodeFiles(const std::string& folder, std::string run, std::string name);

  // Why nothing is kept, in a sentence, where `folder` is there and not this user's alone; else
  // empty.
  const std::string& problem() const { return problem_; }

  // What this node knows from now on, and where its run goes on; nothing is kept where it knows
  // neither.  To be called at least once in an hour.  Fails with the system's code, as where the
  // machine's memory is full: then nothing is kept, and the next call tries again.
  Result<void> keep(const Died& self, const RunPlaces& places = {});

  // Of the agents of this run which have died on this machine and knew a round, the last kMaxDied.
  std::vector<Died> died() const;
  // Where the run went on, as that one of them knew it which has written last of those that knew
  // it; empty: none did.
  RunPlaces places() const;
  // Few enough that it may be asked again and again.
  bool are_few() const { return names_of_run().size() <= kFewFiles; }

  // No worker of this node lives any more, and why it has ended.  Its guardian says the same, if
  // the agent was killed, by write_last_word() with this path; empty where nothing is kept.
  void leave(const std::string& why) const;
  std::string last_word_path() const;

  // The run is over, for all that were part of it here.
  void drop();

 private:
  std::vector<std::string> entries() const;
  std::vector<NodeFile> dead() const;
  const std::vector<std::string>& names_of_run() const;
  void remove_old() const;
  void refresh();
  Error cannot_keep();
  void forget();

  std::string problem_;
  std::string path_;  // of the folder
  Fd folder_;
  std::string boot_;  // the machine's
  std::string run_;
  std::string beginning_;  // of the names of the run's files
  std::string own_;        // the name of this node's
  Fd file_;                // locked
  std::optional<NodeFile> kept_;
  MonoTime refreshed_{};

  // The run's files, where nothing has come to the folder or gone since it was read.
  mutable std::vector<std::string> names_of_run_;
  mutable std::optional<std::timespec> changed_;  // the folder, before that
};

}  // namespace ddprun::rendezvous
