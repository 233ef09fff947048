// SPDX-License-Identifier: BSD-3-Clause
//
// The hosts of one run in this process.  There is at most one at the endpoint, and at most one at
// this node's own port, where it stands in for a host that is gone.  At most one of them is in use:
// this node's last contact is with it.  What the run has left is closed, and stays until its last
// handlers have run.
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
#include "rendezvous/node_security.h"
#include "store/base/endpoint.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.
// Lifetime: stop() must have completed before the destructor runs.
class OwnHosts {
 public:
  struct Parts {
    const NetworkConfig& config;  // as are all references, it is there for longer
    const NodeSecurity& security;
    std::function<void(const std::string&)> log;  // for people
    // The one in use has closed itself.  Of the others only `log` is told.
    std::function<void(const std::string& why)> failed;
    std::function<void(const command::Round&)> formed;  // see HostConfig::on_own_round
    // See HostConfig::look_back.
    std::function<boost::asio::awaitable<void>(Host&, Endpoint)> look_back;
  };
  OwnHosts(boost::asio::any_io_executor executor, Parts parts);
  ~OwnHosts();

  // Gets what happens to the run, as its coordinator in this process sees it.
  void trace_to(std::function<void(const TraceEvent&)> sink) { trace_ = std::move(sink); }

  // nullptr where there is none that lets nodes in.
  Host* at_endpoint() const { return at_endpoint_.get(); }
  Host* standing_in() const { return stand_in_.get(); }
  std::vector<Host*> open_ones() const;
  // The one that is reached there; nothing: at the endpoint.
  Host* at(const std::optional<Endpoint>& place) const;
  bool has(const Host* host) const;
  // Where the other nodes reach it.
  Endpoint place_of(const Host& host) const;

  // nullptr where the last contact is elsewhere.
  Host* in_use() const { return in_use_; }
  void use(Host* host) { in_use_ = host; }
  bool uses_stand_in() const { return in_use_ != nullptr && in_use_ == stand_in_.get(); }
  bool has_left_stand_in() const { return stand_in_ != nullptr && !uses_stand_in(); }

  // Lets nodes in at the endpoint, where `server` listens.
  store::Async<void> open_at_endpoint(std::unique_ptr<store::Server> server,
                                      RunFilePlace run_files);

  // In two steps: what comes to `server` between them waits, and is let in or refused.
  void prepare_stand_in(std::unique_ptr<store::Server> server, Endpoint at, std::uint64_t order,
                        std::optional<HostConfig::Elsewhere> files);
  void take_over(std::vector<RunFile> files) { opening_->take_over(std::move(files)); }
  store::Async<void> open_stand_in();
  boost::asio::awaitable<void> drop_opening();

  // Closes the one that stands in, or that is about to.
  void close_stand_in();

  // See CoordinatorService::host_leaves(); also of what is opened from here on.
  void leave(const std::string& why, int signal);

  // See Host::settle_files().  To be awaited before close().
  boost::asio::awaitable<void> settle_files();
  void close();
  boost::asio::awaitable<void> stop();

 private:
  using Place = std::unique_ptr<Host> OwnHosts::*;
  HostConfig config_of(Place place);
  void failed(Place place, const std::string& why);
  boost::asio::awaitable<void> look_back(Place place, Endpoint at);
  void has_opened(Place place);
  void say_exposure(const Endpoint& listening);

  boost::asio::any_io_executor executor_;
  Parts parts_;
  std::function<void(const TraceEvent&)> trace_;
  std::unique_ptr<Host> at_endpoint_;
  std::unique_ptr<Host> stand_in_;
  Endpoint stand_in_at_;           // as the other nodes know it
  std::unique_ptr<Host> opening_;  // to be one of these once it lets nodes in
  Endpoint opening_at_;            // of one that is to stand in
  std::vector<std::unique_ptr<Host>> closed_;
  Host* in_use_ = nullptr;
  bool has_said_exposure_ = false;
  struct Leave {
    std::string why;
    int signal = 0;
  };
  std::optional<Leave> leave_;
};

}  // namespace ddprun::rendezvous
