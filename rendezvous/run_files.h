// SPDX-License-Identifier: BSD-3-Clause
//
// The run files (decide/run_file.h) of one endpoint, in a folder of this machine.  They survive
// this process, not the machine: nothing waits for a disk to have them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/decide/run_file.h"
#include "store/base/endpoint.h"
#include "store/event.h"

namespace ddprun::rendezvous {

// Where a host keeps its run files.
struct RunFilePlace {
  // The first that is this user's alone, or can be made so, is taken.  Empty: nothing is kept.
  std::vector<std::string> folders{};
  // What the names begin with, where several machines, or network namespaces of one, share a
  // folder.
  std::string prefix{};
  // Calls `work` on a thread that may wait for a disk, and then `done` from the event loop; several
  // one after the other.
  std::function<void(std::string what, std::function<void()> work, std::function<void()> done)>
      run{};
};

// Threads: used from the executor's only thread.  Lifetime: calls that are under way may outlive
// it.
class RunFiles {
 public:
  // Begins to read what is there.  `log` is told what is wrong, once each.
  RunFiles(boost::asio::any_io_executor executor, RunFilePlace place, const Endpoint& endpoint,
           std::function<void(const std::string&)> log);
  ~RunFiles();

  // What the process before this one has left.
  boost::asio::awaitable<std::vector<RunFile>> read();

  void keep(RunFile file);
  void drop(const std::string& run);

  // Completes when all of that has been done, or a disk stands still.
  boost::asio::awaitable<void> settle();

 private:
  struct Shared;
  // `work` returns what is wrong.
  void call(const std::string& what, std::function<std::string()> work);
  std::string name_of(const std::string& run) const;

  RunFilePlace place_;
  std::string endpoint_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun::rendezvous
