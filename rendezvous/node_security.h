// SPDX-License-Identifier: BSD-3-Clause
//
// By what the nodes of a run and its host know each other: by a secret that the user gives, by
// MUNGE, or not at all.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <optional>
#include <string>

#include "rendezvous/decide/network_config.h"
#include "store/async.h"
#include "store/base/endpoint.h"
#include "store/client.h"
#include "store/munge_calls.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.  Lifetime: the config must outlive it.
class NodeSecurity {
 public:
  NodeSecurity(boost::asio::any_io_executor executor, const NetworkConfig& config);

  // Whether there is a munged is found out by asking it.  One that is there and does not answer is
  // asked again with the next attempt: the nodes must all decide alike.
  store::Async<void> prepare();

  bool uses_munge() const { return munge_.has_value(); }
  // Why MUNGE cannot be used on this machine; empty where it can, or is not asked for.
  const std::string& obstacle() const { return obstacle_; }

  // What a node shows to a host, and what a host asks its nodes for.
  void add_to(store::ClientConfig& client);
  void add_to(store::ServerConfig& server) const;

  // For people: who else can take part at a host that listens there; empty: nobody.
  std::string exposure(const Endpoint& listening) const;

 private:
  const NetworkConfig& config_;
  std::optional<store::MungeCalls> munge_;
  std::string obstacle_;
};

}  // namespace ddprun::rendezvous
