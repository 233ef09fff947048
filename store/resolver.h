// SPDX-License-Identifier: BSD-3-Clause
//
// The addresses of a name.  A Resolver looks a name up once in a while, however often its addresses
// are asked for: a thousand nodes that have lost their host would otherwise ask the name server
// several times a second each.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/async.h"
#include "store/base/endpoint.h"
#include "store/base/time.h"

namespace ddprun::store {

using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;

// The addresses of an endpoint.  A numeric address and "localhost" ask no name server.  Fails with
// Errc::TimedOut at `deadline`.
Async<Addresses> resolve(boost::asio::any_io_executor executor, Endpoint endpoint,
                         MonoTime deadline = MonoTime::max());

// Keeps an answer for 5 s and a failure for 1 s.  An answer that is older is used as long as there
// is none that is newer: a name server that is gone, or does not answer, loses no host that was
// found before.  An answer at which nobody was reached is kept for 250 ms, since the host may have
// moved; where eight in a row have brought nothing new, for 1 s.
//
// Threads: used from the executor's thread only.  Lifetime: must outlive its calls.
class Resolver {
 public:
  using Addresses = store::Addresses;
  using OnAnswer = std::function<void(Result<Addresses>)>;
  // Begins to look a name up; `on_answer` is called from the event loop, once, unless what is
  // returned has been destroyed before.
  using Lookup = std::function<std::shared_ptr<void>(Endpoint, OnAnswer on_answer)>;
  // Gets a line about a look-up that stands still.
  using OnStall = std::function<void(std::string)>;

  explicit Resolver(boost::asio::any_io_executor executor, OnStall on_stall = nullptr);
  // With another look-up and another clock for the age of answers, for tests.
  Resolver(boost::asio::any_io_executor executor, OnStall on_stall, Lookup lookup,
           std::function<MonoTime()> clock);

  // The addresses of an endpoint, with its port; fails as resolve() does.
  Async<Addresses> resolve(Endpoint endpoint, MonoTime deadline = MonoTime::max());

  // What came of the addresses that were given for this endpoint: whether any has led to a store.
  void note(const Endpoint& endpoint, bool is_reached);

  // A look-up that takes longer than this is told of.
  static constexpr Duration kStall = std::chrono::seconds(2);

 private:
  struct Entry;
  void look_up(const std::shared_ptr<Entry>& entry, Endpoint endpoint);

  boost::asio::any_io_executor executor_;
  OnStall on_stall_;
  Lookup lookup_;
  std::function<MonoTime()> clock_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;  // by host name
};

}  // namespace ddprun::store
