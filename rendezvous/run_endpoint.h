// SPDX-License-Identifier: BSD-3-Clause
//
// Where the nodes of a run meet: whether this process hosts there, on which of the ports, and who
// coordinates.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/network_config.h"
#include "rendezvous/host.h"
#include "store/client.h"
#include "store/munge_calls.h"
#include "store/resolver.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.
// Lifetime: stop() must have completed before the destructor runs.
class RunEndpoint {
 public:
  struct Parts {
    RunFilePlace run_files;                                   // if this node hosts
    std::function<void(const std::string&)> log;              // for people
    std::function<void(const std::string& why)> host_failed;  // what is hosted here has closed
    std::function<MonoTime()> search_ends;  // when the search for the host is over
  };
  RunEndpoint(boost::asio::any_io_executor executor, NetworkConfig config, Parts parts);
  ~RunEndpoint();

  struct Contact {
    std::unique_ptr<store::Client> sender;
    std::unique_ptr<store::Client> receiver;
    std::string record;  // of the coordinator
  };
  // Connects to the store of the run, or hosts it where that falls to this process and `may_host`.
  // One call at a time.
  store::Async<Contact> reach(bool may_host);

  // With the port at which the run's host was found last.
  const Endpoint& endpoint() const { return config_.endpoint; }
  bool is_hosting() const { return host_ != nullptr; }
  bool uses_munge() const { return munge_.has_value(); }
  // Of this process; nullptr where another one coordinates, or none does yet.
  CoordinatorService* coordinator() { return host_ ? host_->coordinator() : service_.get(); }

  // What is hosted here ends, for this reason and signal; also what is only about to be.
  void host_leaves(const std::string& why, int signal);

  // The store's address, as a process of this machine reaches it.
  Endpoint from_here(const store::Client& client) const;
  // This machine's address, as the other nodes reach it.
  std::string own_address(const store::Client& client) const;

  void close();
  boost::asio::awaitable<void> stop();

 private:
  store::Async<bool> host_if_possible();
  store::Async<void> open_host(std::unique_ptr<store::Server> server);
  store::Async<bool> is_here();
  Result<std::unique_ptr<store::Server>> listen();
  void add_security(store::ServerConfig& server);
  store::Async<void> prepare_munge();
  std::vector<std::uint16_t> ports() const;
  store::Async<void> find_port();
  store::Async<void> look_for_home(std::uint16_t port);
  store::ClientConfig one_attempt();
  store::Async<std::unique_ptr<store::Client>> connect_once();
  store::Async<bool> beats(store::Client& client, std::string pulse);
  store::Async<std::string> coordinator_at(store::Client& client);
  store::Async<std::string> claim(store::Client& client);

  boost::asio::any_io_executor executor_;
  NetworkConfig config_;
  Parts parts_;
  // By what the nodes know each other, unless they have a secret.
  std::optional<store::MungeCalls> munge_;
  std::string munge_obstacle_;  // why it cannot be used on this machine
  store::Resolver resolver_;    // the endpoint is asked for with each attempt
  std::unique_ptr<Host> host_;
  std::unique_ptr<Host> opening_;                // to be host_ once it lets nodes in
  std::unique_ptr<CoordinatorService> service_;  // at a store of another program
  struct Leave {
    std::string why;
    int signal = 0;
  };
  std::optional<Leave> leave_;
};

}  // namespace ddprun::rendezvous
