// SPDX-License-Identifier: BSD-3-Clause
//
// What one process does for all nodes of a run, or of many: it has the store that they meet in and
// the coordinator beside it.  The first agent at the endpoint is that process, or ddpd.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator_service.h"
#include "rendezvous/decide/worker_store_access.h"
#include "rendezvous/run_files.h"
#include "store/base/endpoint.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.  Lifetime: stop() must have completed before the
// destructor runs.
class Host {
 public:
  // Beside a store that listens.  `name` is what people call this machine, `log` is told of what is
  // wrong.  `is_daemon`: this process is no agent, so it may be started again under living workers.
  Host(boost::asio::any_io_executor executor, std::unique_ptr<store::Server> server,
       std::string name, bool is_daemon, RunFilePlace run_files,
       std::function<void(const std::string&)> log);

  // Of a run of the static backend the workers meet in the common namespace of this store, and it
  // is for them alone.  Without this call it is for all clients.  To be called before open().
  void guard_common_namespace(WorkerStoreAccess access) { access_ = std::move(access); }

  // Lets nodes in.  `only_run`: see runs::State.
  store::Async<void> open(std::string only_run = "");

  // A connection of this process to its own store.
  store::Async<std::unique_ptr<store::Client>> connect();

  // nullptr before open() has succeeded.
  CoordinatorService* coordinator() { return coordinator_.get(); }

  void close();
  boost::asio::awaitable<void> stop();

 private:
  boost::asio::any_io_executor executor_;
  std::unique_ptr<store::Server> server_;
  std::string name_;
  bool is_daemon_;
  std::optional<WorkerStoreAccess> access_;
  std::function<void(const std::string&)> log_;
  RunFiles run_files_;
  std::unique_ptr<CoordinatorService> coordinator_;
};

// A new value of keys::kCoordinator for a coordinator in this process.
std::string coordinator_record(const std::string& host, bool is_daemon);

}  // namespace ddprun::rendezvous
