// SPDX-License-Identifier: BSD-3-Clause
//
// How a node that cannot run workers says so to the other nodes of its run.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/decide/network_config.h"
#include "rendezvous/host_registry.h"
#include "rendezvous/run_files.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

// What the rendezvous says meanwhile, for people.
struct PreflightLog {
  std::function<void(const std::string&)> info;
  std::function<void(const std::string&)> error;
};

// Joins the run with `why` as its preflight failure, hosting the rendezvous if that falls to this
// node, and leaves again.  Completes when the coordinator has answered, when the rendezvous has
// failed, or after `patience`, and no other node needs what this one hosts.
//
// Threads: the executor's only one.
boost::asio::awaitable<void> send_preflight_failure(boost::asio::any_io_executor executor,
                                                    NetworkConfig config, RunFilePlace run_files,
                                                    std::unique_ptr<HostRegistry> registry,
                                                    std::string why, Duration patience,
                                                    PreflightLog log);

}  // namespace ddprun::rendezvous
