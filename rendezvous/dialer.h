// SPDX-License-Identifier: BSD-3-Clause
//
// Connects a node to the places where its run may be, and finds the run's host among the ports of
// the endpoint.
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
#include "rendezvous/node_security.h"
#include "store/async.h"
#include "store/base/endpoint.h"
#include "store/base/time.h"
#include "store/client.h"
#include "store/resolver.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.  Lifetime: borrows its parts; must outlive its
// calls.
class Dialer {
 public:
  struct Parts {
    NetworkConfig& config;  // find_port() changes which port is the endpoint's
    NodeSecurity& security;
    std::function<MonoTime()> search_ends;        // when the search for the host is over
    std::function<void(const std::string&)> log;  // for people
  };
  Dialer(boost::asio::any_io_executor executor, Parts parts);

  // An attempt to reach one place begins.  `timeout`: of the whole of it; zero: as long as one
  // takes.
  void begin(Duration timeout);
  // When it is over, unless the host answers before that; MonoTime::max(): never.
  MonoTime deadline() const { return deadline_; }
  // The host has: it has the whole time for its next answer.
  void has_answered();
  boost::asio::awaitable<void> until_deadline();

  // One connection, once, with what is left of the attempt's time.
  store::Async<std::unique_ptr<store::Client>> connect(Endpoint at);
  // The same for a moment, as for a word to another host: within `longest`, and so is each answer
  // there, or nearly; see keep_brief().
  store::Async<std::unique_ptr<store::Client>> connect_within(Duration longest, Endpoint at);
  // Likewise, to whichever port of the endpoint has the run's host.
  store::Async<std::unique_ptr<store::Client>> connect_to_home(Duration longest);

  // Which of the ports the run's host has taken; the endpoint's is set to it.
  store::Async<void> find_port();
  // Where the run's host may be, the likeliest first.
  std::vector<std::uint16_t> ports() const;

  // Whether the endpoint is an address of this machine.
  store::Async<bool> is_here();
  // Then: whether this node may host there.  Its name may be that of other machines, too, which
  // would each host a run of their own.  Not if one of them hosts; and if none does, the machine
  // with the first address is given kOthersFirst.
  boost::asio::awaitable<bool> may_begin_here();

 private:
  Duration time_left() const;
  store::ClientConfig one_attempt(Duration longest);
  store::Async<std::unique_ptr<store::Client>> look_for_home(std::uint16_t port, Duration longest);

  boost::asio::any_io_executor executor_;
  Parts parts_;
  NetworkConfig& config_;
  store::Resolver resolver_;  // the endpoint is asked for with each attempt
  Duration timeout_{};        // of the attempt under way; zero: none
  MonoTime deadline_ = MonoTime::max();
  // The endpoint's addresses that are not this machine's, as is_here() found.
  std::vector<Endpoint> others_;
  bool is_first_ = true;                  // of all of them
  std::optional<MonoTime> others_since_;  // when none of them hosted
  bool is_ambiguity_told_ = false;
};

}  // namespace ddprun::rendezvous
