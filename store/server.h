// SPDX-License-Identifier: BSD-3-Clause
//
// The TCPStore server: a key-value store over TCP that speaks the c10d wire protocol
// (store/PROTOCOL.md), so that a Python torch.distributed worker and a ddprun worker can meet in
// it.  This file is only the plumbing; what a request means is decided in store/decide/keyspace.h.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/auth/secret.h"
#include "store/base/endpoint.h"
#include "store/base/error.h"
#include "store/base/fd.h"
#include "store/base/time.h"
#include "store/decide/allow_list.h"
#include "store/decide/expected_clients.h"
#include "store/decide/gate.h"
#include "store/decide/keyspace.h"
#include "store/decide/namespaces.h"
#include "store/decide/own_names.h"
#include "store/decide/pages.h"
#include "store/decide/wire.h"

namespace ddprun::store {

struct ServerConfig {
  // Where to listen.  Port 0 asks the kernel for a free port; see Server::port().  The host is
  // numeric, or "localhost"; "::" takes IPv4 as well.
  Endpoint listen{.host = "0.0.0.0", .port = 29500};

  // The addresses whose connections are taken; all while empty.  Others are closed before a byte is
  // read, counted, and logged once for each address.
  AllowList allow{};

  // And beside it, for a store that serves one job.  Without it any process of this machine, and
  // all other machines, may connect.
  std::optional<Gate> gate{};

  // A client must know one of these to enter a reserved namespace, if there are any.  Clients that
  // know the second have other namespaces under the same names than those that know the first, and
  // so on.  A client of another user or machine must know the first to read the pages, but for
  // /healthz.  The common namespace asks for none.
  std::vector<Secret> secrets{};
  // From which some clients make the secret (store/auth/munge.h); sent to all who ask.
  std::string credential{};
  // With secrets: whether others are served in the common namespace.
  bool serves_strangers = true;

  // What one request may announce; torch's limits.
  WireLimits wire{};

  // What all clients together may store, in all namespaces; unlimited, as in torch.
  KeyspaceLimits keyspace{};

  // Named namespaces that there may be at one time; a client that enters another is refused.
  std::size_t max_namespaces = 1024;

  // So many clients may connect at the same moment; where the system lets fewer queue up, one line
  // in the log says so.
  std::size_t expected_clients = 1024;

  // Connections of clients, without those that have entered a reserved namespace; at most seven
  // eighths of what the system lets this process have.  A client beyond them is closed at its first
  // request.  Those that have not asked for anything do not count as clients: an eighth more of
  // them may be there, and of these the oldest makes room.  So strangers keep no node of a run out.
  std::size_t max_connections = std::numeric_limits<std::size_t>::max();

  // All connections together; at most as many as leave this process 64 descriptors for all else.
  // When there are so many, the oldest makes room that has asked for nothing; else one of those
  // that have entered a reserved namespace, if very many come from its address or network
  // (store/decide/crowd.h); else who comes is closed.
  std::size_t max_all_connections = std::numeric_limits<std::size_t>::max();

  // A peer that has not shaken hands by then is no c10d client, and is closed; likewise one that
  // has entered a reserved namespace and asked for nothing there.
  Duration handshake_timeout = std::chrono::seconds(30);

  // Whether a connection that begins like HTTP gets one of the pages /healthz, /metrics and /status
  // (store/PROTOCOL.md); if not, it is closed like any other that does not shake hands.
  bool serves_http = true;

  // Whether clients of the store are served; if not, a connection that does not begin like HTTP is
  // closed.
  bool serves_clients = true;

  // A client that leaves so many bytes of replies unread is not read from until it catches up.
  std::size_t max_unread_bytes = 1 << 20;

  // And when it has taken nothing more for so long, it is closed.
  Duration unread_timeout = std::chrono::minutes(2);

  // What unread replies of all clients may hold, without values that are stored: a value counts
  // once, from the moment on in which only replies hold it.  Beyond it, the clients whose replies
  // hold most are closed, until seven eighths of it are left.
  std::size_t max_reply_bytes = std::numeric_limits<std::size_t>::max();

  // What requests that have not arrived in full may hold, of all clients together.  Beyond it,
  // the client that holds most is closed.
  std::size_t max_held_bytes = std::size_t{4} << 30;

  // Told, in a sentence, of each client that had to be disconnected, and of trouble with the
  // system; of a flood of such lines only the first few.  Must not call the server.
  std::function<void(const std::string&)> log{};
};

class PageSource;  // store/page_source.h

// A listening store.
//
// Threads: used from the executor's thread only; the executor must not run on more than one.
// Lifetime: owns its connections.  The executor's context must outlive it.  stop() or close()
// before the destructor, which otherwise closes; handlers that are still queued then do nothing.
class Server {
 public:
  // Binds and listens before returning, so that a client started afterwards can connect, and raises
  // this process's limit of open descriptors (store/system_limits.h).  Fails with the
  // system's own code and the address as context ("bind 0.0.0.0:29500").
  static Result<std::unique_ptr<Server>> listen(boost::asio::any_io_executor executor,
                                                ServerConfig config);

  // Serves a socket that listens already; `config.listen` does not matter.  Fails with
  // Errc::InvalidInput where it is no listening TCP socket.
  static Result<std::unique_ptr<Server>> serve(boost::asio::any_io_executor executor, Fd listener,
                                               ServerConfig config);
  ~Server();

  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The port being listened on; never 0.
  std::uint16_t port() const;
  // The address being listened on, numeric: "0.0.0.0:29500".
  const Endpoint& endpoint() const;

  // close(), and then completes when what was queued on the executor has run.
  boost::asio::awaitable<void> stop();

  // Stops accepting and closes all connections now, so that clients which wait learn of it at
  // once.  Calling it again has no effect.
  void close();

  // A connection from within this process (store::Client::adopt), which neither the allow list nor
  // any limit of this configuration concerns, and which is not counted.  `secret` says in whose
  // reserved namespaces: an index of ServerConfig::secrets, or 0.
  Result<Fd> connect(std::size_t secret = 0);

  // Gives the namespace of this name room of its own (Namespaces::reserve()), so that clients
  // in other namespaces cannot use up what it needs; one for each secret.  To be called before the
  // executor runs: no client may have entered the namespace.
  void reserve_namespace(std::string name);

  // What a client in a reserved namespace pushes there onto a queue whose name begins so, or leaves
  // as its last will, gets a stamp (store/decide/stamp.h): the address that its connection shows.
  // Connections of this process itself stamp nothing.  To be called before the executor runs.
  void stamp_queues(std::string beginning);

  // Of another client than this process itself that asks in a reserved namespace for what
  // is_for_own_only() (store/decide/own_names.h), the connection is closed.  To be called before
  // the executor runs.
  void keep_own(OwnNames names);

  // What a key holds in the reserved namespace of those who know this secret; empty where there is
  // none.
  std::string value_of(std::string_view reserved_name, std::size_t secret,
                       std::string_view key) const;

  // Closes every connection that is in the common namespace, and empties that namespace; last wills
  // left in it are not carried out.  Connections in a named namespace live on, and those that have
  // not shaken hands may go on.  So several rounds of workers share a port, and each begins with an
  // empty store whose former clients fail at once.  With a `gate`, from now on only those whom it
  // admits are served there: another client is closed at its first request that is neither part of
  // the handshake nor ENTER_NAMESPACE.
  void renew_common_namespace(std::optional<Gate> gate = std::nullopt);

  // Whether a client must know a secret to enter a reserved namespace.
  bool asks_for_secret() const;

  // Shows more on the pages; nullptr: no more.  `source` must outlive this, or be taken back.
  void show(const PageSource* source);

  std::size_t connection_count() const;
  const Namespaces& namespaces() const;
  const Keyspace& keyspace() const;  // of the common namespace
  // At most `max_count` of the clients that were announced and have not connected.
  std::vector<ExpectedClients::Missing> missing_clients(std::size_t max_count);
  // The same, with how many there are; and who waits for what, the first 1,000.
  JoinProgress join_progress();
  std::vector<Waiter> waiters() const;
  // When the last client of the announced world connected; nullopt: not all of it has.
  std::optional<MonoTime> all_connected_at();
  // The most that was done before the server looked again for what its clients have sent, in what
  // finding one name costs, a quarter of a microsecond (store/decide/turn.h).
  std::size_t longest_turn() const;
  // What large values that are gone still hold of memory; it is freed step by step.
  std::size_t unfreed_bytes() const;

 private:
  class Impl;

  explicit Server(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::store
