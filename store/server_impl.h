// SPDX-License-Identifier: BSD-3-Clause
//
// The inside of store/server.h: which handler is called when.  Included only by server.cc (the
// server, and how connections begin and end), server_sessions.cc (what happens on a connection),
// server_inbox.cc (what is pushed for this process) and server_security.cc (who is at its other
// end).
// Its parts are session.h (the connections), status.h (what it counts and shows) and poller.h.
#pragma once

#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "store/base/fd.h"
#include "store/clock.h"
#include "store/decide/host_turns.h"
#include "store/decide/turn.h"
#include "store/decide/unfreed_memory.h"
#include "store/limited_log.h"
#include "store/memory_keeper.h"
#include "store/server.h"
#include "store/session.h"
#include "store/socket.h"
#include "store/socket_owner.h"
#include "store/status.h"

namespace ddprun::store {

// Clients whose time is up at some point, in the order of their deadlines, and the timer for it.
struct DeadlineQueue {
  explicit DeadlineQueue(boost::asio::any_io_executor executor) : timer(std::move(executor)) {}

  // The next client whose time is up, if there is one.
  std::optional<ClientId> take_due(MonoTime now) {
    if (clients.empty() || clients.front().first > now) return std::nullopt;
    ClientId id = clients.front().second;
    clients.pop_front();
    return id;
  }

  std::deque<std::pair<MonoTime, ClientId>> clients;
  boost::asio::steady_timer timer;
};

// Descriptors that are to be closed.  The system takes 10 us for each, so they are closed a few at
// a time: thousands of clients that leave at once do not keep all others waiting.
class ClosingQueue {
 public:
  void add(Fd fd) { fds_.push_back(std::move(fd)); }
  bool empty() const { return fds_.empty(); }
  std::size_t size() const { return fds_.size(); }
  void close_some() {
    constexpr int kInARow = 32;
    for (int i = 0; i < kInARow && !fds_.empty(); ++i) fds_.pop_front();
  }
  void close_all() { fds_.clear(); }

 private:
  std::deque<Fd> fds_;
};

// Events name an id and not a session, because the session may be gone when they are looked at.
// Handlers hold `is_open_`, because the server itself may be gone.
class Server::Impl {
 public:
  Impl(boost::asio::any_io_executor executor, ServerConfig config, Fd listener, Fd epoll_set,
       Endpoint endpoint);

  const boost::asio::any_io_executor& executor() const { return executor_; }
  const Endpoint& endpoint() const { return endpoint_; }
  bool asks_for_secret() const { return !config_.secrets.empty(); }
  std::size_t connection_count() const { return sessions_.client_count(); }
  const Namespaces& namespaces() const { return namespaces_; }
  std::vector<ExpectedClients::Missing> missing_clients(std::size_t max_count) {
    return status_.missing_clients(max_count);
  }
  JoinProgress join_progress() { return status_.join_progress(); }
  std::vector<Waiter> waiters() const { return status_.waiters(mono_now()); }
  std::optional<MonoTime> all_connected_at() { return status_.all_connected_at(); }
  std::size_t longest_turn() const { return turn_.most(); }
  std::size_t unfreed_bytes() const { return unfreed_.bytes(); }
  void renew_common_namespace(std::optional<Gate> gate);
  Result<Fd> connect(std::size_t secret);
  void reserve_namespace(std::string name);
  void stamp_queues(std::string beginning) { stamped_queues_ = std::move(beginning); }
  void keep_own(OwnNames names) { own_names_ = std::move(names); }
  std::string value_of(std::string_view reserved_name, std::size_t secret,
                       std::string_view key) const;
  void show(const PageSource* source) { status_.show(source); }
  void close();

 private:
  // Makes a handler that calls `method` with `arguments`, unless the server is closed by then.
  template <class... Arguments>
  auto bound(void (Impl::*method)(Arguments...), Arguments... arguments) {
    return [this, is_open = is_open_, method,
            arguments...](const boost::system::error_code& error = {}) {
      if (*is_open && error != boost::asio::error::operation_aborted) {
        UnfreedMemory::Scope scope(unfreed_);
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
  bool make_room();
  bool make_room_for(const std::string& host);
  void find_owners(const Gate& gate);
  std::optional<Refusal> why_refused(int fd);
  std::optional<Refusal> why_refused_at(const Gate& gate, int fd, const std::string& host);
  void refuse(const Refusal& refusal);
  void await_handshake();
  void close_unvalidated();
  void await_expiry(MonoTime deadline);
  void expire();
  Session* find(ClientId id) const { return sessions_.find(id); }
  void drop(Session& session, const std::string& reason);
  void forget(Session& session);
  void close_later(Fd fd);
  void close_more();
  void account_for(ClientId id);
  void log(const std::string& sentence);

  // What happens on a connection (server_sessions.cc).
  void watch_for(Session& session, Poller::Interest interest);
  void stop_reading(Session& session);
  void read_from(Session& session);
  void take(Session& session, std::string_view bytes);
  void serve(Session& session);
  static bool is_settled(const Session& session);
  bool settle(Session& session, const Request& request);
  bool concerns_common(const Session& session, const Request& request);
  bool may_use_common_namespace(Session& session, const Request& request);
  void stall(Session& session);
  void await_stall();
  void close_stalled();
  bool carry_out(Session& session, const Request& request, std::size_t effort, MonoTime now);
  void enqueue(Session& session);
  void defer(Session& session, const std::optional<Request>& request);
  void resume_some();
  bool must_wait_for_memory(const Session& session, const Request& request) const;
  void resume(Session& session, const std::optional<Request>& request, bool has_turn = false);
  void keep_working();
  void work_on();
  void finish(const Namespaces::Done& done);
  void route(Session* asker = nullptr);
  void note_due(Session& session, Due due);
  void flush_all();
  void flush_due(ClientId id, Due due);
  bool flush(Session& session);
  void limit_unread(ClientId id);
  void write_to(Session& session);
  void serve_http(Session& session, std::string_view bytes);
  void respond(Session& session, const PageAnswer& answer);
  void send_made(const Status::Made& made);
  void follow(Session& session, Reader reader);
  void look_for_followers();

  // What they push into the queues that this process reads (server_inbox.cc).
  bool gets_stamp(const Session& session, std::string_view queue) const;
  std::optional<Request> with_stamp(const Session& session, const Request& request);
  void note_inbox(const Session& session, const Request& request);
  bool inbox_is_full() const;
  bool inbox_has_crowd() const;
  bool own_is_next() const;
  bool must_wait_for_turn(const Session& session, const Request& request) const;
  void await_turn(Session& session, const Request& request);
  void let_will_wait(const Session& session);
  bool has_turns() const;
  void give_turns();
  void push_to_inbox(ClientId client, Value item);

  // Who the clients are, and what is sealed for them (server_security.cc).
  bool serve_connection(Session& session, const Request& request);
  void enter_reserved(Session& session, std::string_view name);
  void answer(Session& session, std::string_view bytes);
  void challenge(Session& session, const request::Authenticate& request);
  void prove(Session& session, const request::Prove& request);
  void seal_some(Session& session);
  bool is_of_this_user(Session& session);
  std::optional<Reader> reader_of(Session& session);

  boost::asio::any_io_executor executor_;
  ServerConfig config_;
  WireLimits own_limits_;            // for connections of this process itself
  std::size_t max_connections_ = 0;  // of all standings
  std::size_t max_clients_ = 0;
  std::size_t max_strangers_ = 0;  // clients and guests
  Endpoint endpoint_;
  std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);  // held by handlers

  Poller poller_;
  Fd listener_;
  boost::asio::steady_timer accept_pause_;
  boost::asio::steady_timer expiry_timer_;
  DeadlineQueue stalls_;            // clients that do not read their replies
  std::optional<MonoTime> expiry_;  // what the timer is set to
  DeadlineQueue handshakes_;        // clients that have not validated yet
  boost::asio::steady_timer follow_timer_;
  bool is_followed_ = false;  // the timer is set

  LimitedLog log_;
  std::unordered_set<std::string> refusals_;  // that were logged lately
  SocketOwners owners_;
  bool has_asked_for_owners_ = false;  // for the pages
  std::optional<Gate> common_gate_;    // of the common namespace
  UnfreedMemory unfreed_;              // of what a handler drops; outlives all values
  Namespaces namespaces_;
  std::unordered_set<std::string> reserved_names_;  // as clients say them
  std::string stamped_queues_;                      // how their names begin; empty: there are none
  OwnNames own_names_;
  Sessions sessions_;
  Status status_{namespaces_, sessions_};
  MemoryKeeper memory_;
  bool is_working_ = false;  // work_on() has been asked for
  ClosingQueue closing_;
  ClientId last_id_ = 0;

  // Of one turn.  One read also bounds the time that a client may take before others get theirs.
  std::array<char, 128 * 1024> input_;
  std::string opened_;   // of it, what was sealed
  std::string stamped_;  // of it, what has got a stamp
  Replies replies_;
  std::vector<ClientId> asked_;  // those who are due a reply to what they asked
  Turn turn_;
  std::size_t turn_count_ = 0;

  // For the turns that follow.
  std::deque<ClientId> woken_;  // those who are due a reply that others have caused
  // A client that others are served before, and the request that it has made and is carried out
  // first, if there is one.
  struct Deferred {
    ClientId client;
    std::optional<Request> request;
  };
  std::deque<Deferred> deferred_;
  // The queue that this process reads, and who waits for a place in it.
  struct Inbox {
    struct Waiting {
      ClientId client;
      std::optional<Request> request;  // of a client that is there
      Value will;                      // of one that has gone
    };
    struct Own {  // what this process has pushed itself: behind all numbers up to `after`
      HostTurns::Number after;
      ClientId client;
      Value item;
    };
    Namespace* ns = nullptr;
    std::string queue;
    HostTurns turns;
    std::unordered_map<HostTurns::Number, Waiting> waiting;
    std::deque<Own> own;
    std::size_t held_bytes = 0;  // of last wills
  };
  Inbox inbox_;
};

}  // namespace ddprun::store
