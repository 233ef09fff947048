// SPDX-License-Identifier: BSD-3-Clause
//
// Where the nodes of a run meet: at the endpoint, or, where the run's host may change, at the port
// of a node that stands in.  Whether this process hosts there, on which of the ports, and who
// coordinates.  Where a registry says who hosts, "the endpoint" is the host that stands there, and
// whoever claims to be it hosts at its own port.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/decide/host_search.h"
#include "rendezvous/decide/network_config.h"
#include "rendezvous/dialer.h"
#include "rendezvous/host.h"
#include "rendezvous/host_messenger.h"
#include "rendezvous/host_registry.h"
#include "rendezvous/node_security.h"
#include "rendezvous/own_hosts.h"
#include "rendezvous/registered_host.h"
#include "rendezvous/stand_in_port.h"
#include "rendezvous/store_coordinator.h"
#include "store/client.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.
// Lifetime: stop() must have completed before the destructor runs.
class RunEndpoint {
 public:
  struct Parts {
    RunFilePlace run_files;                       // if this node hosts
    std::function<void(const std::string&)> log;  // for people
    // What is hosted here has closed, and the run is there.
    std::function<void(const std::string& why)> host_failed;
    // A coordinator here has formed a round of this node; see ServiceConfig::on_own_round.
    std::function<void(const command::Round&)> formed;
    std::function<MonoTime()> search_ends;  // when the search for the host is over
    // Where it stands who hosts; empty: the endpoint says it.
    std::unique_ptr<HostRegistry> registry{};
  };
  RunEndpoint(boost::asio::any_io_executor executor, NetworkConfig config, Parts parts);
  ~RunEndpoint();

  struct Contact {
    std::unique_ptr<store::Client> sender;
    std::unique_ptr<store::Client> receiver;
    std::string record;  // of the coordinator
  };
  struct Place {
    std::optional<Endpoint> at{};  // nothing: the endpoint
    std::string of{};              // the node whose coordinator is to be there; empty: any
    bool may_host = true;          // the endpoint, where that falls to this process
    // It is this node's own port to stand in on, which is to be open; its number among them.
    std::uint64_t stand_in = 0;
    Duration timeout{};  // of the whole attempt; zero: as long as one takes
    // Where there is a registry: the node is in a round and looks for the host that it had; or it
    // has been in one, and maybe is one of its stand-ins.
    bool is_back = false;
    bool has_round = false;
    bool has_turn = false;
  };
  // Connects to the store of the run there, or hosts it.  One call at a time.
  store::Async<Contact> reach(const Place& place);

  // What people call it; nothing: the endpoint, with the port at which the host was found last.
  std::string name_of(const std::optional<Endpoint>& place) const;
  // Where the host was found by the registry last.
  const std::optional<Endpoint>& registered_at() const { return registered_at_; }
  // The port on which this node would host the run; 0: on none.
  std::uint16_t stand_in_port() const { return port_ ? port_->port() : 0; }
  // Whether the last contact is with a store of this process.
  bool is_hosting() const { return hosts_.in_use() != nullptr; }
  bool uses_munge() const { return security_.uses_munge(); }
  // Gets what happens to the run, as its coordinator in this process sees it.
  void trace_to(std::function<void(const TraceEvent&)> sink) { hosts_.trace_to(std::move(sink)); }
  // Those of this process.
  std::vector<CoordinatorService*> coordinators();
  // When enough nodes were last heard to see the coordinator of the last contact; nothing where it
  // is none of this process.  See runs::heard_at().
  std::optional<MonoTime> heard_at() const;

  // Whether this node stands in, and its last contact is elsewhere.
  bool is_left() const { return hosts_.has_left_stand_in(); }
  // Then what it hosts there is closed; it may stand in again later.
  void close_if_left();

  // Where this process coordinates the run: asks whoever is at that place which of the two is to
  // have it, and gives way if it is the other one.
  boost::asio::awaitable<void> knock(std::optional<Endpoint> place);

  // See HostMessenger::tell().
  boost::asio::awaitable<void> tell(std::vector<std::optional<Endpoint>> places,
                                    std::string message, MonoTime end);

  // What is hosted here ends, for this reason and signal, or is left to another node; also what is
  // only about to be.
  void host_leaves(const std::string& why, int signal);
  // Whether it is left to another node, which finds that out when close() has been called.
  bool leaves_to_others();
  bool has_successor();

  // The store's address, as a process of this machine reaches it.
  Endpoint from_here(const store::Client& client) const;
  // This machine's address, as the other nodes reach it.
  std::string own_address(const store::Client& client) const;

  // Nobody hosts the run here any more, at its end.
  boost::asio::awaitable<void> give_up();

  // See Host::settle_files().  To be awaited before close().
  boost::asio::awaitable<void> settle_files();

  void close();
  boost::asio::awaitable<void> stop();

 private:
  store::Async<Contact> meet(Endpoint at, std::string of);
  Result<void> check_for_several(const std::string& record) const;
  store::Async<Contact> meet_in_time(Endpoint at, std::string of = "");
  store::Async<Contact> reach_endpoint(bool may_host);
  store::Async<Contact> reach_registered(const Place& place);
  store::Async<Contact> reach_entry(const HostEntry& entry);
  store::Async<bool> host_by_claim(std::uint64_t generation);
  void superseded();
  store::Async<HostEntry> newest_in_time();
  void confirm_if_here(Host& host);
  HostConfig::Elsewhere files_by_registry(const Endpoint& at, bool is_claimed);
  store::Async<bool> host_if_possible();
  Result<void> prepare_stand_in(const Endpoint& at, std::uint64_t order, bool is_claimed);
  store::Async<void> stand_in(const Endpoint& at, std::uint64_t number);
  // Where this node stands in, as the others know it.
  Endpoint own_place() const { return hosts_.place_of(*hosts_.standing_in()); }
  boost::asio::awaitable<void> knock_from(Host& host, std::optional<Endpoint> place);
  Result<std::unique_ptr<store::Server>> listen();
  store::Async<std::unique_ptr<store::Client>> connect(Endpoint at);

  boost::asio::any_io_executor executor_;
  NetworkConfig config_;
  Parts parts_;
  NodeSecurity security_;
  Dialer dialer_;
  OwnHosts hosts_;
  std::optional<StandInPort> port_;
  std::unique_ptr<RegisteredHost> registered_;
  std::unique_ptr<HostMessenger> messenger_;  // never nullptr
  host_search::State search_;
  std::optional<Endpoint> registered_at_;  // where the host was found by the registry last
  std::set<std::string> knocks_at_;        // where an answer is waited for
  StoreCoordinator at_store_;              // of another program
};

}  // namespace ddprun::rendezvous
