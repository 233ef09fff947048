// SPDX-License-Identifier: BSD-3-Clause
//
// A client of a c10d store: ours, or torch's own TCPStore server.  Keys are spelled on the wire as
// torch's client spells them, so both clients see the same keys.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/async.h"
#include "store/auth/handshake.h"
#include "store/auth/sealed_stream.h"
#include "store/auth/secret.h"
#include "store/base/endpoint.h"
#include "store/base/fd.h"
#include "store/base/time.h"
#include "store/decide/wire.h"
#include "store/event.h"
#include "store/munge_calls.h"

namespace ddprun::store {

class Resolver;

struct ClientConfig {
  // How long connect() goes on trying while the server is not there yet.
  Duration connect_timeout = std::chrono::seconds(60);

  // Whether connect() fails at the first answer that is none, and then with that answer: with
  // Errc::Refused where every address says that no program listens.
  bool tries_once = false;

  // A call that the server does not answer for so long, beyond what it was asked to wait, fails
  // and closes the connection: an answer that came later would be taken for the next call's.
  Duration reply_timeout = std::chrono::seconds(60);

  // A peer that accepts the connection and does not answer the greeting for so long is no store.
  // It is this long because torch's server answers no client while it waits for a name server.
  Duration greeting_timeout = std::chrono::seconds(10);

  // How long the server's machine may acknowledge nothing, not even that it is there, before the
  // connection fails; see bound_silence().
  Duration silence_limit = std::chrono::minutes(2);

  // Whether to ask the server for our extensions.  torch's server answers by closing, and is then
  // connected to again.
  bool probes_extensions = true;

  // The namespace to be in; empty for the common one, where torch's clients are.  A server without
  // our extensions has no other, and the client then is in that: see has_extensions().  It must
  // live until connect() has answered.  (No std::string: with one, GCC 12 destroys a config that is
  // written as a braced list inside co_await twice.)
  std::string_view namespace_name{};

  // What the server must know, and is shown that this client knows; from then on all is sealed.  A
  // server that says that it has no secret, or another, is refused with Errc::Protocol.  One that
  // closes the connection instead, twice in a row, as torch's does, may be one that knows the
  // secret and had no room: it is tried again, as one that cannot be reached.  Null: a server that
  // asks for a secret before it lets a client into `namespace_name` is refused with Errc::Protocol.
  // It must live until connect() has answered.
  const Secret* secret = nullptr;

  // Without a secret of its own, by what this client makes the secret from what the server sends;
  // it is ready.  It must live until connect() has answered.
  MungeCalls* munge = nullptr;

  // Where connect() has the name looked up; null: anew with each attempt.  It must outlive the
  // call.
  Resolver* resolver = nullptr;
};

// One connection to a store.  Calls that are made at the same time are carried out one after the
// other, so a call that waits delays the others; a caller that needs both makes two connections.
//
// Every call fails with Errc::Closed, or the system's code, once the connection is lost.  A call
// with a timeout fails with Errc::TimedOut when the time is up; the connection is then as usable as
// before.  A call that is cancelled closes the connection, and later calls fail with Errc::Closed.
//
// Threads: used from the executor's thread only.  Lifetime: must outlive its calls.
class Client {
 public:
  // Resolves, connects and shakes hands; tries again with a growing pause, until the timeout,
  // while the name does not resolve, no program listens or the server closes the connection.  The
  // error says which addresses were tried and what each answered last.  Fails with Errc::Protocol,
  // and no later than `greeting_timeout`, where something listens that is no TCPStore, and says
  // what it answered; with Errc::LimitExceeded where the server has no room for another namespace.
  static Async<std::unique_ptr<Client>> connect(boost::asio::any_io_executor executor,
                                                Endpoint endpoint, ClientConfig config = {});

  // Over a connection that is there already, such as Server::connect() gives; `peer` is what errors
  // call the other end.
  static Async<std::unique_ptr<Client>> adopt(boost::asio::any_io_executor executor, Fd fd,
                                              std::string peer, ClientConfig config);

  // Stores or overwrites.  It may return before the server has seen it; calls keep their order.
  Async<void> set(std::string key, std::string value);

  // The most that an answer is let to hold; the server decides what it announces.  A call that gets
  // more fails with Errc::Protocol, and the connection is closed.  A value that was put together by
  // append() may be larger than one that a server takes at once.
  static constexpr std::size_t kMaxAnswerBytes = std::size_t{1} << 30;

  // Stores `desired` if the key holds `expected`, or if it does not exist and `expected` is empty.
  // Answers what the key then holds.  If the key does not exist and `expected` is not empty, it
  // answers `expected`, as c10d does.
  Async<std::string> compare_set(std::string key, std::string expected, std::string desired,
                                 std::size_t max_bytes = kMaxAnswerBytes);

  // The value, once the key exists.
  Async<std::string> get(std::string key, Duration timeout,
                         std::size_t max_bytes = kMaxAnswerBytes);

  // Adds to a decimal counter, which starts at 0, and answers the sum.
  Async<std::int64_t> add(std::string key, std::int64_t delta);

  // Whether all the keys exist now.
  Async<bool> check(std::vector<std::string> keys);

  // The value of a key, and whether `flag` exists, in one exchange.  Of a key that does not exist
  // the value is empty, and torch's own server closes the connection.
  struct Flagged {
    std::string value;
    bool is_flagged = false;
  };
  Async<Flagged> get_and_check(std::string key, std::string flag,
                               std::size_t max_bytes = kMaxAnswerBytes);

  // Completes when each of the keys exists, or has existed since the call.
  Async<void> wait(std::vector<std::string> keys, Duration timeout);

  // The number of keys in the namespace.
  Async<std::int64_t> num_keys();

  // Answers whether the key existed.
  Async<bool> delete_key(std::string key);

  Async<void> append(std::string key, std::string piece);
  // The values, once all the keys exist.
  Async<std::vector<std::string>> multi_get(std::vector<std::string> keys, Duration timeout);
  Async<void> multi_set(std::vector<std::pair<std::string, std::string>> pairs);

  Async<void> queue_push(std::string queue, std::string item);
  // Pushes to each queue its item, in this order.
  struct Pushed {
    std::string queue, item;
  };
  Async<void> queue_push_all(std::vector<Pushed> all);
  // The oldest item, once there is one.
  Async<std::string> queue_pop(std::string queue, Duration timeout,
                               std::size_t max_bytes = kMaxAnswerBytes);
  // The oldest items, once there is one: `most` at most, which is 1 at least.
  Async<std::vector<std::string>> queue_pop_some(std::string queue, Duration timeout,
                                                 std::size_t most,
                                                 std::size_t max_bytes = kMaxAnswerBytes);
  // The oldest item, if there is one now.
  Async<std::optional<std::string>> queue_try_pop(std::string queue);
  Async<std::int64_t> queue_len(std::string queue);

  // Empties queues and deletes keys, whether they exist or not: in one exchange where each queue
  // has an item at most.
  struct Discarded {
    std::string queue;
    std::vector<std::string> keys;
  };
  Async<void> discard(std::vector<Discarded> all);

  // The keys, in no order.
  Async<std::vector<std::string>> list_keys();

  // Completes when `world_size` calls have been made for this key.  A key serves one barrier.
  Async<void> barrier(std::string key, std::int64_t world_size, Duration timeout);

  // Whether the server has our extensions; without them, last wills fail with Errc::NotSupported.
  bool has_extensions() const { return has_extensions_; }

  // Leaves `item` with the server, to be pushed to `queue` if this connection is lost, for whatever
  // reason but the server's own end.  A connection has one last will; a later one replaces it.
  Async<void> set_last_will(std::string queue, std::string item);
  Async<void> clear_last_will();

  // Tells the server whom to expect, for its page /status: a worker by the process id that it has
  // and this machine, and how many workers there will be in all.  Void when this connection is
  // lost, or the common namespace is renewed.
  Async<void> expect(std::string name, std::uint32_t pid);
  Async<void> expect_world(std::int64_t size);

  // Closes the connection; a call under way, and every later one, fails.
  void close();

  // What this is connected to: the endpoint as given, and the address where that is a name.
  const std::string& peer() const { return peer_; }

  // What both ends know, if they have shown that to each other.
  const std::optional<Secret>& secret() const { return secret_; }

  // The numeric address of this end, "10.0.0.7": the one from which this machine reaches the
  // server.
  const std::string& local_address() const { return local_address_; }

  // The address and port at the other end; the default where it is this process.
  boost::asio::ip::tcp::endpoint remote() const;

 private:
  class ConnectionLock;

  Client(boost::asio::ip::tcp::socket socket, std::string peer, ClientConfig config);

  // One attempt at one address.
  static Async<std::unique_ptr<Client>> connect_once(boost::asio::any_io_executor executor,
                                                     boost::asio::ip::tcp::endpoint address,
                                                     std::string peer, ClientConfig config,
                                                     MonoTime deadline);

  // Steps of a call; what_ names it in their errors.
  boost::asio::awaitable<std::unique_ptr<ConnectionLock>> lock_for(std::string what);
  Async<void> send(Request request);
  Async<void> seal_and_send(std::string requests);
  Async<void> send_bytes(std::string bytes);
  Async<std::string> read(std::size_t count, MonoTime deadline);
  Async<std::uint8_t> read_byte(MonoTime deadline);
  Async<std::int64_t> read_number(Duration patience = Duration::zero());
  Async<std::string> read_bytes(std::size_t max_bytes);

  // The first steps on a connection (client_connect.cc).
  Async<void> greet(MonoTime deadline);
  Async<bool> probe(const ClientHandshake* handshake, MonoTime deadline);
  Async<void> authenticate(ClientHandshake* handshake, MonoTime deadline);
  Async<void> enter_space(MonoTime deadline);
  Async<std::string> read_short(MonoTime deadline);
  Error stranger(std::string answer) const;
  Error turned_away() const;
  Error no_secret_there() const;
  Error secret_is_missing() const;
  Async<Secret> shared_secret(std::string credential);

  Async<void> confirm(std::string what, Request request);
  struct Taken {
    std::string item;
    std::size_t left = 0;  // in the queue
  };
  Async<Taken> take(std::string name, Duration timeout, std::size_t max_bytes);
  Async<void> finish_wait(Duration timeout);
  Async<void> wait_for(std::vector<std::string> names, Duration timeout);
  Async<std::optional<std::string>> pop(std::string name, std::size_t max_bytes);
  Async<std::optional<std::string>> popped(std::size_t max_bytes);
  Async<std::int64_t> ask_number(std::string what, Request request);
  Async<void> tell(std::string what, Request request);
  MonoTime reply_deadline() const;
  template <class T>
  Result<T> finished(Result<T> result) {
    is_in_step_ = result.has_value();
    return result;
  }
  Error failure(std::error_code code, std::string reason) const;

  boost::asio::ip::tcp::socket socket_;
  std::string peer_;
  std::string local_address_;
  ClientConfig config_;

  std::string input_;  // received, and used up to taken_
  std::size_t taken_ = 0;
  bool is_in_step_ = true;  // nothing is half sent, and no answer is outstanding
  std::string what_;        // the call under way: "get 'k'"
  bool has_extensions_ = false;
  bool has_authentication_ = false;
  std::optional<Secret> secret_;
  std::optional<SealedStream> stream_;  // once both ends have shown that they know the secret
  bool is_busy_ = false;
  Event freed_;  // a call has ended
};

}  // namespace ddprun::store
