// SPDX-License-Identifier: BSD-3-Clause
//
// The inside of store/server.h: who is connected, and which handler is called when.  Included by
// server.cc (the life of the server and of its connections) and server_sessions.cc (what happens on
// a connection), and by nobody else.
#pragma once

#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "store/base/fd.h"
#include "store/decide/expected_clients.h"
#include "store/decide/outbox.h"
#include "store/decide/pages.h"
#include "store/decide/rate_limited_log.h"
#include "store/http.h"
#include "store/poller.h"
#include "store/server.h"
#include "store/socket.h"

namespace ddprun::store {

// One connection: a client's, or that of somebody who looks at a page.
struct Session {
  Session(ClientId id_, Fd fd_, const WireLimits& limits, Namespace& ns_)
      : id(id_), fd(std::move(fd_)), decoder(limits), ns(&ns_) {}

  // Whether it is of this process itself: Server::connect().
  bool is_own() const { return store::is_own(id); }

  ClientId id;
  Fd fd;
  Poller::Interest interest;  // what the poller watches for
  Decoder decoder;
  Namespace* ns;  // where its requests are carried out
  Outbox outbox;
  std::unique_ptr<HttpReader> http;    // if it began with a letter
  std::optional<std::uint32_t> nonce;  // of its first PING; torch's client sends its process id
  std::size_t held_bytes = 0;          // as last accounted for
  bool is_dirty = false;               // is in the list of those to be flushed
  MonoTime stalled_since{};            // what it has left unread did not become less since then;
  std::size_t stalled_bytes = 0;       // while it is not read from for that, otherwise 0
  bool closes_when_flushed = false;
  // Its large request is not done; then it is not read from, and stays, without a descriptor if
  // need be.
  bool is_busy = false;
};

// Events name an id and not a session, because a session may be gone by the time they are looked
// at; and handlers hold the lifeline, because the server itself may be.
class Server::Impl {
 public:
  Impl(boost::asio::any_io_executor executor, ServerConfig config, Fd listener, Fd epoll_set,
       Endpoint endpoint);

  const boost::asio::any_io_executor& executor() const { return executor_; }
  const Endpoint& endpoint() const { return endpoint_; }
  std::size_t connection_count() const { return sessions_.size() - own_count_; }
  const Namespaces& namespaces() const { return namespaces_; }
  void renew_common_namespace();
  Result<Fd> connect();
  void reserve_namespace(std::string name) { namespaces_.reserve(std::move(name)); }
  void close();

 private:
  // Makes a handler that calls `method` with `arguments`, unless the server is closed by then.
  template <class... Arguments>
  auto bound(void (Impl::*method)(Arguments...), Arguments... arguments) {
    return [this, is_open = is_open_, method,
            arguments...](const boost::system::error_code& error = {}) {
      if (*is_open && error != boost::asio::error::operation_aborted) {
        (this->*method)(arguments...);
      }
    };
  }

  // The server and its connections (server.cc).
  void await_events();
  void take_turns();
  void take_turn(std::span<const Poller::Ready> ready);
  void accept_some();
  void pause_accepting(int error_number);
  void resume_accepting();
  void add_session(Fd fd, MonoTime now);
  void admit(Fd fd, MonoTime now, bool is_own);
  void refuse(const std::string& host);
  void await_handshake();
  void close_unvalidated();
  void await_expiry(MonoTime deadline);
  void expire();
  Session* find(ClientId id);
  void drop(Session& session, const std::string& reason);
  void forget(Session& session);
  void close_later(Fd fd);
  void close_more();
  void close_some();
  void account_for(ClientId id);
  void give_memory_back();
  void log(const std::string& sentence);

  // What happens on a connection (server_sessions.cc).
  void watch_for(Session& session, Poller::Interest interest);
  void read_from(Session& session);
  void take(Session& session, std::string_view bytes);
  void serve(Session& session);
  void note(Session& session, const Request& request);
  void stall(Session& session);
  void await_stall();
  void close_stalled();
  void enqueue(Session& session, const Request& request);
  void keep_working();
  void work_on();
  void finish(const Namespaces::Done& done);
  void route();
  void flush_all();
  bool flush(Session& session);
  void write_to(Session& session);
  void serve_http(Session& session, std::string_view bytes);
  Page page_for(const HttpReader& request);
  std::size_t wait_count() const;
  std::vector<Waiter> waiters();
  JoinProgress join_progress();

  boost::asio::any_io_executor executor_;
  ServerConfig config_;
  WireLimits own_limits_;  // for connections of this process itself
  Endpoint endpoint_;
  std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);  // the lifeline

  Poller poller_;
  Fd listener_;
  boost::asio::steady_timer accept_pause_;
  boost::asio::steady_timer handshake_timer_;
  boost::asio::steady_timer expiry_timer_;
  boost::asio::steady_timer stall_timer_;
  std::deque<std::pair<MonoTime, ClientId>> stalls_;      // who is to be looked at when
  std::optional<MonoTime> expiry_;                        // what the timer is set to
  std::deque<std::pair<MonoTime, ClientId>> handshakes_;  // who has until when to shake hands

  RateLimitedLog log_;
  std::unordered_set<std::string> refused_hosts_;  // that were logged lately
  Namespaces namespaces_;
  ExpectedClients expected_clients_;
  Metrics metrics_;
  std::size_t most_bytes_ = 0;  // that the namespaces have held since memory was last given back
  std::size_t held_bytes_ = 0;  // of incomplete requests, of all sessions
  std::unordered_map<ClientId, std::unique_ptr<Session>> sessions_;
  bool is_working_ = false;  // work_on() has been asked for
  std::deque<Fd> closing_;   // to be closed; nobody's any more
  ClientId last_id_ = 0;
  std::size_t own_count_ = 0;  // of the sessions that are this process's own

  // Of one turn.  One read also bounds the time that a client may take before others get theirs.
  std::array<char, 128 * 1024> input_;
  Replies replies_;
  std::vector<ClientId> dirty_;
};

}  // namespace ddprun::store
