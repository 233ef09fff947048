// SPDX-License-Identifier: BSD-3-Clause
//
// Collects the stacks of processes, by the tools that a machine has: py-spy for Python's, eu-stack
// or gdb for native ones.  None of them is needed; without any, nothing is collected.
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/time.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"

namespace ddprun::process {

// A program that writes the stacks of a process, whose pid becomes its last argument, to stdout.
using StackTool = std::vector<std::string>;

// Those found in `search_path` (the value of PATH): py-spy, and eu-stack, else gdb.  Of a process
// with LibTorch eu-stack needs a tenth of a second, gdb, which reads all symbols first, ten
// seconds.
std::vector<StackTool> stack_tools(std::string_view search_path);
// Of these, those that need no second, and gdb.
std::vector<StackTool> quick_tools(std::vector<StackTool> tools);
std::vector<StackTool> slow_tools(std::vector<StackTool> tools);
// "py-spy and eu-stack".
std::string names_of(const std::vector<StackTool>& tools);

struct StackTarget {
  pid_t pid = -1;
  std::string path;  // the file that gets its stacks; appended to
};

// Threads: used from the reaper's only thread.
// Lifetime: borrows the reaper and the thread for the disk; all three must outlive the tools.
class StackCollector {
 public:
  StackCollector(Reaper& reaper, IoThread& disk) : reaper_(reaper), disk_(disk) {}

  // Runs every tool on every target, one after another on each, since a process has one debugger at
  // a time, and returns when they have ended, at the latest after `limit`: what still runs then is
  // killed, and its file says so.  A tool that cannot be run says why in the file.  (Attaching may
  // be forbidden: kernel.yama.ptrace_scope.)
  boost::asio::awaitable<void> collect(std::vector<StackTool> tools,
                                       std::vector<StackTarget> targets,
                                       std::vector<std::string> environment, Duration limit);

  // Ends a collect() that waits for the disk, and kills the tools that run, because a target that a
  // debugger holds hears no signal, and returns the pids of those that have not ended yet.  What is
  // being collected comes to its end soon.
  std::set<pid_t> interrupt();

 private:
  struct Collection;
  void start_next(const std::shared_ptr<Collection>& collection, std::size_t target);

  Reaper& reaper_;
  IoThread& disk_;
  int interruptions_ = 0;
  std::vector<std::weak_ptr<Collection>> collections_;
};

}  // namespace ddprun::process
