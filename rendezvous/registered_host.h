// SPDX-License-Identifier: BSD-3-Clause
//
// One node's dealings with the registry of its run: what stands there now, and, while this node
// hosts, that it does.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/decide/host_entry.h"
#include "rendezvous/host_registry.h"
#include "store/event.h"
#include "store/task_group.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.
// Lifetime: stop() must have completed before the destructor runs.
class RegisteredHost {
 public:
  struct Parts {
    std::unique_ptr<HostRegistry> registry;
    std::string node;                             // member::Config::name
    std::function<void(const std::string&)> log;  // for people
  };
  RegisteredHost(boost::asio::any_io_executor executor, Parts parts);
  ~RegisteredHost();

  std::string name() const { return parts_.registry->name(); }

  store::Async<HostEntry> newest();

  // This node hosts at `at` from now on, if it is the one that claims this generation.
  store::Async<bool> claim(std::uint64_t generation, const Endpoint& at);

  // The run is at this node: a round of it has begun here.  Written down without anybody waiting
  // for it, as the next generation if another node stands there.  The registry may not answer for
  // a while.
  void keep(const Endpoint& at, RunFile file);
  // No worker of the run lives.
  void drop();
  // The run is still here, as keep() has said, and another node stands in the registry: this one is
  // written down again.  Nothing while may_begin() asks: the other one may have begun the run.
  void confirm();

  // The first round of a run is about to begin here.  True once it is written down that it has, so
  // that no other node begins the run; false if another one hosts.  Asks until it is known, or
  // close(): then false.
  boost::asio::awaitable<bool> may_begin(RunFile file);

  // This node does not host any more, but another one does: nothing more is written.
  void leave();
  // Nobody hosts any more, as far as this node knows.
  boost::asio::awaitable<void> give_up();

  void close();
  boost::asio::awaitable<void> stop();

 private:
  HostEntry entry(std::uint64_t generation) const;
  boost::asio::awaitable<void> write_down();
  store::Async<void> write_once();
  void say_once(const Error& error);
  boost::asio::awaitable<void> pause();

  Parts parts_;
  std::uint64_t generation_ = 0;  // that this node has claimed, and nobody a later one; 0: none
  std::uint64_t hostings_ = 0;    // counts what leave() has ended
  Endpoint at_;
  bool says_file_ = false;
  std::optional<RunFile> file_;
  bool is_beginning_ = false;  // may_begin() asks
  bool is_due_ = false;        // something is to be written
  bool is_writing_ = false;    // write_down() runs
  bool is_told_ = false;       // that the registry does not answer
  bool is_open_ = true;
  boost::asio::steady_timer pause_;
  store::TaskGroup tasks_;
};

}  // namespace ddprun::rendezvous
