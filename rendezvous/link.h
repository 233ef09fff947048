// SPDX-License-Identifier: BSD-3-Clause
//
// One connection of a node to its coordinator: two to the store, since a pop that waits keeps a
// connection busy.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/store_keys.h"
#include "store/base/time.h"
#include "store/client.h"
#include "store/event.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.  Its coroutines share it, and end once it is
// closed.
class Link {
 public:
  struct Parts {
    std::unique_ptr<store::Client> sender;
    std::unique_ptr<store::Client> receiver;
    std::string record;  // the coordinator's
    std::string run{};
    std::string node;
    std::uint64_t connection = 0;  // of the node, counted
  };
  // Must outlive the coroutines.
  struct Listener {
    std::function<void(Command)> heard;  // of what is no command, an Info that says so
    // The coordinator's, for this run, after a heartbeat.
    std::function<void(std::string)> pulse_seen;
    std::function<void(const Error&)> lost;  // not after close()
  };
  Link(boost::asio::any_io_executor executor, Parts parts, Listener listener);

  const store::Client& client() const { return *parts_.sender; }
  const std::string& record() const { return parts_.record; }

  // Asks the store to post `message` to the coordinator if the connection is lost.
  store::Async<void> set_last_will(std::string message);

  void post(std::string message);
  // The same, followed by a look at the pulse.
  void post_heartbeat(std::string message);

  // Says how the workers are: sets keys::vitals().  Of several that wait to be sent the last goes.
  void post_vitals(std::string text) { post_key(keys::vitals(parts_.node), std::move(text)); }
  // Likewise who waits in the workers' store: keys::waits().
  void post_waits(std::string text) { post_key(keys::waits(parts_.node), std::move(text)); }
  // Likewise what they do: keys::stacks().
  void post_stacks(std::string text) { post_key(keys::stacks(parts_.node), std::move(text)); }

  // And a piece of its files: keys::bundle().
  void post_bundle(std::string text) { post_key(keys::bundle(parts_.node), std::move(text)); }

  // Says what the workers have drawn: sets keys::slices(), before any message that follows.
  void post_slices(std::string text);

  // What happens on it, each to be run once.
  static boost::asio::awaitable<void> send(std::shared_ptr<Link> link);
  static boost::asio::awaitable<void> receive(std::shared_ptr<Link> link);

  // Completes when all messages are out, when it is closed or lost, or at `deadline`.
  static boost::asio::awaitable<void> flush(std::shared_ptr<Link> link, MonoTime deadline);

  void close();

 private:
  struct Unsent {
    std::string message;
    bool is_heartbeat = false;
    std::string key{};  // that is to be set to the message; empty: it goes to the coordinator
  };
  void post_key(std::string key, std::string value);
  void lost(const Error& error);

  Parts parts_;
  Listener listener_;
  std::deque<Unsent> outgoing_;
  std::map<std::string, std::string> values_{};  // to be set, by key, when no message waits
  bool is_sending_ = false;
  bool is_open_ = true;
  store::Event has_mail_;  // there is something to send
  store::Event has_sent_;  // nothing is left to send
};

}  // namespace ddprun::rendezvous
