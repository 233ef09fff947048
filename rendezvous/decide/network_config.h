// SPDX-License-Identifier: BSD-3-Clause
//
// What a node of a run of several nodes is told before it starts: values, validated by cli.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/member_state.h"
#include "rendezvous/decide/worker_store_access.h"
#include "store/auth/secret.h"
#include "store/base/endpoint.h"
#include "store/decide/allow_list.h"

namespace ddprun::rendezvous {

// An etcd in which it is written down who hosts the run (rendezvous/host_etcd.h).
struct EtcdUse {
  std::vector<Endpoint> members{};  // at least one
  bool uses_tls = false;
  std::string ca{};           // of the members; empty: the system's.  Files are PEM
  std::string certificate{};  // of this node; empty: none
  std::string key{};          // of it; empty: in the same file
  std::string user{};         // empty: none
  std::string password{};
  std::string prefix = "/ddprun";  // of the keys
};

struct NetworkConfig {
  Endpoint endpoint;  // where the nodes meet; the first of several (Settings::endpoints)
  // Further ports of the same host, in the command to try them: the host takes the first that is
  // free, and the others go on where something else answers.  Empty: only the endpoint's.
  std::vector<std::uint16_t> other_ports{};
  // Makes one of them the endpoint's.  No port leaves the list: the next search begins with it.
  void use_port(std::uint16_t port) {
    std::ranges::replace(other_ports, port, endpoint.port);
    endpoint.port = port;
  }
  std::optional<bool> is_host{};  // the user's word; else the one that can bind the endpoint
  // Instead of an endpoint, who hosts is written down in this folder (rendezvous/host_files.h).
  // `endpoint` then has this machine's address, as the others reach it, and no port.
  std::string host_folder{};
  // Or in this etcd; likewise.
  std::optional<EtcdUse> etcd{};
  // How many nodes will come, where that is known and no other run has this one's id: the host
  // tells those that come after the end how it was.  0: not known.
  std::size_t expected_nodes = 0;
  // How long this node stays, when its own run is over, for runs of others that meet here and can
  // have another host; none: to their end.
  std::optional<Duration> patience_with_others{};
  // If the run's host is lost, this node may host it on a port of its own.  Not with the static
  // backend, whose workers meet at the endpoint.
  bool may_stand_in = false;
  // A folder in this machine's memory for what its nodes know (node_files.h); empty: none.
  std::string node_files{};
  std::string bind{};                     // the address to host on; empty: chosen by the endpoint
  store::AllowList allow{};               // who may come in, if this node hosts
  std::optional<store::Secret> secret{};  // that all nodes of the run share
  // Without a secret: nodes know each other by MUNGE.
  struct MungeUse {
    std::string socket{};      // of munged; empty: where libmunge looks for it
    bool is_required = false;  // else a node that finds no munged hosts without
  };
  std::optional<MungeUse> munge{};
  WorkerStoreAccess worker_store{};
  member::Config member{};
};

}  // namespace ddprun::rendezvous
