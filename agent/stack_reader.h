// SPDX-License-Identifier: BSD-3-Clause
//
// Sees what the workers do, without ending them: by their stacks (py-spy, eu-stack, where the
// machine has them) and by what the kernel says of them.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/workers.h"
#include "store/base/time.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"
#include "worker/process/stacks.h"

namespace ddprun::agent {

struct StackReaderConfig {
  std::vector<std::string> environment{};  // of the stack tools
  std::string search_path{};               // where they are looked for
};

struct SeenWorker {
  int rank = 0;
  pid_t pid = -1;
  std::string folder;
  std::string doing;   // by the kernel, before the tools began
  std::string native;  // as eu-stack has written it; empty: it is not there, or has not answered
  std::string python;  // by py-spy, likewise
};

struct SeenWorkers {
  std::map<int, SeenWorker> workers;  // by local rank
  std::vector<std::string> tools;     // by name, that the machine has
};

// Threads: used from the reaper's only thread.
// Lifetime: borrows the reaper, the thread for the disk and the workers.  look() must have
// completed before the destructor runs.
class StackReader {
 public:
  StackReader(process::Reaper& reaper, process::IoThread& disk, StackReaderConfig config,
              Workers& workers);

  // What becomes of the texts.
  enum class Texts : std::uint8_t {
    Kept,  // in the workers' log folders, where they have some
    Removed,
  };

  // Looks at the workers that run now and have one of these ranks; of none: at all.  Completes when
  // the tools have ended, at `until` at the latest; they hold a worker for a part of that.
  // nullopt: interrupt() came before.
  boost::asio::awaitable<std::optional<SeenWorkers>> look(Texts texts, std::set<int> ranks,
                                                          MonoTime until);

  // Returns the pids of the tools that are just ending, which a sweep leaves alone.
  std::set<pid_t> interrupt();

 private:
  StackReaderConfig config_;
  process::IoThread& disk_;
  Workers& workers_;
  process::StackCollector stacks_;
  int interruptions_ = 0;
};

}  // namespace ddprun::agent
