// SPDX-License-Identifier: BSD-3-Clause
//
// What one process does for all nodes of a run, or of many: it has the store that they meet in and
// the coordinator beside it.  The first agent at the endpoint is that process, or ddpd.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator_service.h"
#include "rendezvous/decide/worker_store_access.h"
#include "rendezvous/knocker.h"
#include "rendezvous/run_files.h"
#include "rendezvous/run_pages.h"
#include "store/auth/secret.h"
#include "store/base/endpoint.h"
#include "store/server.h"

namespace ddprun::rendezvous {

struct HostConfig {
  std::string name;        // what people call this machine
  bool is_daemon = false;  // it is no agent, so it may be started again under living workers

  // The node of this agent, where the hosts of the runs here may change, and request::Knock::order.
  // Of a daemon: a name that no other process has, for runs whose nodes have several endpoints.
  std::string node{};
  std::uint64_t order = 0;
  std::function<void(const command::Round&)> on_own_round{};                // see ServiceConfig
  std::function<boost::asio::awaitable<void>(Endpoint place)> look_back{};  // likewise

  RunFilePlace run_files{};

  // Where a registry has the run file (host_registry.h), instead: see ServiceConfig.
  struct Elsewhere {
    std::string run;  // that it is about
    std::function<void(RunFile)> keep{};
    std::function<void(const std::string& run)> drop{};
    std::function<boost::asio::awaitable<bool>(RunFile)> may_begin{};
    std::function<void()> superseded = [] {};
  };
  std::optional<Elsewhere> run_file_elsewhere{};

  // Nodes that know different secrets of the server never meet: there is a coordinator for each.
  // What tells their run files apart; one for each secret, or for none.
  std::vector<std::string> secret_marks{""};
  // Of a daemon: these secrets, to speak to the daemons at other endpoints; empty: none.
  std::vector<store::Secret> secrets{};

  Tracer::Sink trace{};  // see ServiceConfig

  std::function<void(const std::string&)> log;  // told of what is wrong

  // Told once, in a sentence, if a coordinator cannot go on.  The host has closed itself by then,
  // so that the nodes notice at once.  Empty: `log` is told.
  std::function<void(const std::string& why)> on_failed{};
};

// Threads: used from the executor's only thread.  Lifetime: stop() must have completed before the
// destructor runs.
class Host {
 public:
  // Beside a store that listens.
  Host(boost::asio::any_io_executor executor, std::unique_ptr<store::Server> server,
       HostConfig config);

  // Of a run of the static backend the workers meet in the common namespace of this store, and it
  // is for them alone.  Without this call it is for all clients.  To be called before open().
  void guard_common_namespace(WorkerStoreAccess access) { access_ = std::move(access); }

  // What the registry has of the run.  To be called before open().
  void take_over(std::vector<RunFile> files) { found_elsewhere_ = std::move(files); }

  // Lets nodes in.  `only_run`: see runs::State.
  store::Async<void> open(std::string only_run = "");

  // A connection of this process to its own store, to where those meet who know this secret.
  store::Async<std::unique_ptr<store::Client>> connect(std::size_t secret = 0);

  // Of those who know the first secret; nullptr before open() has begun to let nodes in.
  CoordinatorService* coordinator() {
    return coordinators_.empty() ? nullptr : coordinators_.front().get();
  }

  bool is_open() const { return is_open_; }
  const Endpoint& endpoint() const { return endpoint_; }  // where its store listens
  void close();
  // Completes when the run files are as they are to be, or a disk stands still.  The host that
  // follows here reads them as soon as this one has closed.
  boost::asio::awaitable<void> settle_files();
  boost::asio::awaitable<void> stop();

 private:
  std::vector<RunsSource> sources() const;
  std::optional<std::string> stacks(const StacksTarget& target, bool is_wanted) const;
  std::optional<std::string> bundle(const BundleTarget& target, bool is_wanted) const;
  store::Async<void> coordinate(std::size_t secret, const std::string& only_run);
  void failed(const std::string& why);

  boost::asio::any_io_executor executor_;
  bool is_open_ = true;
  std::unique_ptr<store::Server> server_;
  Endpoint endpoint_;
  HostConfig config_;
  std::optional<WorkerStoreAccess> access_;
  std::vector<RunFile> found_elsewhere_;
  // For each secret.
  std::vector<std::unique_ptr<RunFiles>> run_files_;
  std::vector<std::unique_ptr<Knocker>> knockers_;  // of a daemon
  std::vector<std::unique_ptr<CoordinatorService>> coordinators_;
  RunPages pages_{
      [this] { return sources(); },
      [this](const StacksTarget& target, bool is_wanted) { return stacks(target, is_wanted); },
      [this](const BundleTarget& target, bool is_wanted) { return bundle(target, is_wanted); }};
};

// A new value of keys::kCoordinator for a coordinator in this process; `node`: see HostConfig.
std::string coordinator_record(const std::string& host, bool is_daemon,
                               const std::string& node = "");

// A name for HostConfig::node of a daemon on this machine; no two are the same.
std::string daemon_name(const std::string& host);

}  // namespace ddprun::rendezvous
