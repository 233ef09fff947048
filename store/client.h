// SPDX-License-Identifier: BSD-3-Clause
//
// A store at the other end of a TCP connection: ours, or torch's own TCPStore server.  Keys are
// spelled on the wire as torch's client spells them, so both see the same ones.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/endpoint.h"
#include "store/base/fd.h"
#include "store/decide/wire.h"
#include "store/event.h"
#include "store/store.h"

namespace ddprun::store {

struct ClientConfig {
  // How long connect() goes on trying while the server is not there yet.
  Duration connect_timeout = std::chrono::seconds(60);

  // Whether connect() fails at the first answer that is none, and then with that answer.
  bool tries_once = false;

  // A call that the server does not answer for so long, beyond what it was asked to wait, fails
  // and closes the connection: an answer that came later would be taken for the next call's.
  Duration reply_timeout = std::chrono::seconds(60);

  // A peer that accepts the connection and does not answer the greeting for so long is no store.
  // It is this long because torch's server answers nobody while it waits for a name server.
  Duration greeting_timeout = std::chrono::seconds(10);

  // How long the server's machine may acknowledge nothing, not even that it is there, before the
  // connection fails; see bound_silence().
  Duration silence_limit = std::chrono::minutes(2);

  // Whether to ask the server for our extensions.  torch's server answers by closing, and is then
  // connected to again.
  bool probes_extensions = true;

  // The space to be in; empty for the common one, where torch's clients are.  A server without our
  // extensions has no other, and the client then is in that: see has_extensions().  It must live
  // until connect() has answered.  (No std::string: with one, GCC 12 destroys a config that is
  // written as a braced list inside co_await twice.)
  std::string_view space{};
};

// One connection to a store.  Calls made at the same time are carried out one after the other, so
// one that waits keeps the others waiting; whoever needs both connects twice.  A call that is
// cancelled closes the connection, and calls after it fail with Errc::Closed.
//
// Threads: used from the executor's thread only.  Lifetime: must outlive its calls.
class Client final : public Store {
 public:
  // Resolves, connects and shakes hands; tries again with a growing pause, until the timeout,
  // while the name does not resolve, nobody listens or the server hangs up.  The error says which
  // addresses were tried and what each answered last.  Fails with Errc::Protocol, and no later than
  // `greeting_timeout`, where something listens that is no TCPStore, and says what it answered;
  // with Errc::LimitExceeded where the server has no room for another space.
  static Async<std::unique_ptr<Client>> connect(boost::asio::any_io_executor executor,
                                                Endpoint endpoint, ClientConfig config = {});

  // Over a connection that is there already, such as Server::connect() gives; `peer` is what errors
  // call the other end.
  static Async<std::unique_ptr<Client>> adopt(boost::asio::any_io_executor executor, Fd fd,
                                              std::string peer, ClientConfig config);

  Async<void> set(std::string key, std::string value) override;
  Async<std::string> compare_set(std::string key, std::string expected,
                                 std::string desired) override;
  Async<std::string> get(std::string key, Duration timeout) override;
  Async<std::int64_t> add(std::string key, std::int64_t delta) override;
  Async<bool> check(std::vector<std::string> keys) override;
  Async<void> wait(std::vector<std::string> keys, Duration timeout) override;
  Async<std::int64_t> num_keys() override;
  Async<bool> delete_key(std::string key) override;
  Async<void> append(std::string key, std::string piece) override;
  Async<std::vector<std::string>> multi_get(std::vector<std::string> keys,
                                            Duration timeout) override;
  Async<void> multi_set(std::vector<std::pair<std::string, std::string>> pairs) override;
  Async<void> queue_push(std::string queue, std::string item) override;
  Async<std::string> queue_pop(std::string queue, Duration timeout) override;
  Async<std::optional<std::string>> queue_try_pop(std::string queue) override;
  Async<std::int64_t> queue_len(std::string queue) override;
  Async<std::vector<std::string>> list_keys() override;
  Async<void> barrier(std::string key, std::int64_t world_size, Duration timeout) override;

  // Whether the server has our extensions; without them, wills fail with Errc::NotSupported.
  bool has_extensions() const { return has_extensions_; }

  // Leaves `item` with the server, to be pushed to `queue` if this connection is lost, for whatever
  // reason but the server's own end.  A connection has one will; a later one replaces it.
  Async<void> set_will(std::string queue, std::string item);
  Async<void> clear_will();

  // Tells the server whom to expect, for its page /status: a worker by the process id that it has
  // and this machine, and how many workers there will be in all.  Void when this connection is
  // lost, or the common space is renewed.
  Async<void> expect(std::string who, std::uint32_t pid);
  Async<void> expect_world(std::int64_t size);

  // Closes the connection; a call under way, and every later one, fails.
  void close();

  // What this is connected to: the endpoint as given, and the address where that is a name.
  const std::string& peer() const { return peer_; }

  // The numeric address of this end, "10.0.0.7": the one from which this machine reaches the
  // server.
  const std::string& local_address() const { return local_address_; }

 private:
  class Turn;

  Client(boost::asio::ip::tcp::socket socket, std::string peer, ClientConfig config);

  // One attempt at one address.
  static Async<std::unique_ptr<Client>> connect_once(boost::asio::any_io_executor executor,
                                                     boost::asio::ip::tcp::endpoint address,
                                                     std::string peer, ClientConfig config,
                                                     MonoTime deadline);

  // Steps of a call; what_ names it in their errors.
  boost::asio::awaitable<std::unique_ptr<Turn>> turn_for(std::string what);
  Async<void> send(Request request);
  Async<std::string> read(std::size_t count, MonoTime deadline);
  Async<std::uint8_t> read_byte(MonoTime deadline);
  Async<std::int64_t> read_number(Duration patience = Duration::zero());
  Async<std::string> read_bytes();

  // The first steps on a connection (client_connect.cc).
  Async<void> greet(MonoTime deadline);
  Async<bool> probe(MonoTime deadline);
  Async<void> enter_space(MonoTime deadline);
  Error stranger(std::string answer) const;

  Async<void> confirm(std::string what, Request request);
  Async<std::string> take(std::string name, Duration timeout);
  Async<void> finish_wait(Duration timeout);
  Async<void> wait_for(std::vector<std::string> names, Duration timeout);
  Async<std::optional<std::string>> pop(std::string name);
  Async<std::int64_t> ask_number(std::string what, Request request);
  Async<void> tell(std::string what, Request request);
  MonoTime reply_deadline() const;
  template <class T>
  Result<T> finished(Result<T> result) {
    is_in_step_ = result.has_value();
    return result;
  }
  Error failure(boost::system::error_code code, std::string reason) const;

  boost::asio::ip::tcp::socket socket_;
  std::string peer_;
  std::string local_address_;
  ClientConfig config_;

  std::string input_;  // received, and used up to taken_
  std::size_t taken_ = 0;
  bool is_in_step_ = true;  // nothing is half sent, and no answer is outstanding
  std::string what_;        // the call under way: "get 'k'"
  bool has_extensions_ = false;
  bool is_busy_ = false;
  Event freed_;  // a call has ended
};

}  // namespace ddprun::store
