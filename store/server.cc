// SPDX-License-Identifier: BSD-3-Clause
#include "store/server.h"

#include <malloc.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/outbox.h"
#include "store/quiet_log.h"
#include "store/socket.h"

namespace ddprun::store {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// One read.  It also bounds the time that one client may take before others get their turn.
constexpr std::size_t kReadBytes = 64 * 1024;

// One write gathers up to this many pieces.
constexpr std::size_t kGatheredPieces = 128;

// How long to wait before accepting again when the system has no descriptor left.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

struct Session {
  Session(ClientId id_, asio::any_io_executor executor, UniqueFd fd, const WireLimits& limits)
      : id(id_), descriptor(std::move(executor), fd.release()), decoder(limits) {}

  ClientId id;
  asio::posix::stream_descriptor descriptor;
  Decoder decoder;
  Outbox outbox;
  std::size_t held_bytes = 0;  // as last accounted for
  bool is_dirty = false;       // is in the list of those to be flushed
  bool awaits_room = false;    // a handler is called when it can be written to
  bool awaits_bytes = false;   // a handler is called when it can be read from
};

}  // namespace

// Handlers hold an id and not a session, because a session may be gone when its handler is called;
// and they hold the lifeline, because the server itself may be.
class Server::Impl {
 public:
  Impl(asio::any_io_executor executor, ServerConfig config, UniqueFd listener, std::uint16_t port)
      : executor_(std::move(executor)),
        config_(std::move(config)),
        port_(port),
        listener_(executor_, listener.release()),
        accept_pause_(executor_),
        handshake_timer_(executor_),
        expiry_timer_(executor_),
        log_(config_.log),
        keyspace_(config_.keyspace) {
    await_connections();
  }

  const asio::any_io_executor& executor() const { return executor_; }
  std::uint16_t port() const { return port_; }
  std::size_t connection_count() const { return sessions_.size(); }
  const Keyspace& keyspace() const { return keyspace_; }

  void close() {
    if (!*is_open_) return;
    *is_open_ = false;
    error_code ignored;
    listener_.close(ignored);
    accept_pause_.cancel();
    handshake_timer_.cancel();
    expiry_timer_.cancel();
    sessions_.clear();
  }

 private:
  // Makes a handler that calls `method` with `arguments`, unless the server is closed by then.
  template <class... Arguments>
  auto bound(void (Impl::*method)(Arguments...), Arguments... arguments) {
    return [this, is_open = is_open_, method, arguments...](const error_code& error) {
      if (*is_open && error != asio::error::operation_aborted) (this->*method)(arguments...);
    };
  }

  void await_connections() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read, bound(&Impl::accept_all));
  }

  void accept_all() {
    MonoTime now = std::chrono::steady_clock::now();
    for (;;) {
      UniqueFd fd = accept_from(listener_.native_handle());
      if (fd) {
        add_session(std::move(fd), now);
      } else if (errno == EAGAIN) {
        return await_connections();
      } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
        return pause_accepting(errno);
      }
    }
  }

  // The system is short of something, of descriptors as a rule; those who connect wait meanwhile.
  void pause_accepting(int error_number) {
    log(to_string(system_error(error_number, "cannot accept connections for now")));
    accept_pause_.expires_after(kAcceptPause);
    accept_pause_.async_wait(bound(&Impl::accept_all));
  }

  void add_session(UniqueFd fd, MonoTime now) {
    if (sessions_.size() >= config_.max_connections) {
      log("refused " + peer_of(fd.get()) + ": " + std::to_string(sessions_.size()) +
          " connections are open");
      return;
    }
    ClientId id = ++last_id_;
    auto session = std::make_unique<Session>(id, executor_, std::move(fd), config_.wire);
    Session& added = *sessions_.emplace(id, std::move(session)).first->second;
    await_bytes(added);
    handshakes_.emplace_back(now + config_.handshake_timeout, id);
    if (handshakes_.size() == 1) await_handshake();
  }

  void await_handshake() {
    handshake_timer_.expires_at(handshakes_.front().first);
    handshake_timer_.async_wait(bound(&Impl::close_mute_peers));
  }

  void close_mute_peers() {
    MonoTime now = std::chrono::steady_clock::now();
    while (!handshakes_.empty() && handshakes_.front().first <= now) {
      Session* session = find(handshakes_.front().second);
      handshakes_.pop_front();
      if (session != nullptr && !session->decoder.is_validated()) {
        drop(*session, "no handshake in time");
      }
    }
    if (!handshakes_.empty()) await_handshake();
    flush_all();
  }

  void await_bytes(Session& session) {
    if (std::exchange(session.awaits_bytes, true)) return;
    session.descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                  bound(&Impl::read_from, session.id));
  }

  void read_from(ClientId id) {
    Session* session = find(id);
    if (session == nullptr) return;
    session->awaits_bytes = false;
    ssize_t count = ::recv(session->descriptor.native_handle(), input_.data(), input_.size(), 0);
    if (count > 0) {
      session->decoder.feed({input_.data(), static_cast<std::size_t>(count)});
      serve(*session);
      account_for(id);
    } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      await_bytes(*session);
    } else {
      forget(*session);
    }
    flush_all();
  }

  // Carries out what has arrived from a client, as long as it reads its replies.
  void serve(Session& session) {
    MonoTime now = std::chrono::steady_clock::now();
    ClientId id = session.id;
    for (;;) {
      if (session.outbox.size() > config_.max_unread_bytes && !flush(session)) {
        if (Session* stalled = find(id)) stalled->decoder.keep();
        return;  // write_to() goes on from here
      }
      Decoder::Next next = session.decoder.next();
      if (std::holds_alternative<Decoder::NeedMore>(next)) return await_bytes(session);
      if (auto* malformed = std::get_if<Decoder::Malformed>(&next)) {
        return drop(session, malformed->reason);
      }
      auto fault = keyspace_.execute(id, std::get<Request>(next), now, replies_);
      route();
      if (fault) return drop(session, *fault);
    }
  }

  // Keeps count of what incomplete requests hold.  When all together hold too much, whoever holds
  // most is closed: clients that are served do not hold much for long.
  void account_for(ClientId id) {
    if (Session* session = find(id)) {
      std::size_t held = session->decoder.held_bytes();
      held_bytes_ += held - std::exchange(session->held_bytes, held);
    }
    while (held_bytes_ > config_.max_held_bytes) {
      auto most = std::max_element(sessions_.begin(), sessions_.end(), [](auto& a, auto& b) {
        return a.second->held_bytes < b.second->held_bytes;
      });
      Session& session = *most->second;
      drop(session, "holds " + std::to_string(session.held_bytes) +
                        " bytes of an incomplete request, and all together too much");
    }
  }

  // Gives memory back to the system after much has been deleted; free() alone keeps it.
  void give_memory_back() {
    constexpr std::size_t kWorthwhileBytes = 32 << 20;
    std::size_t bytes = keyspace_.bytes();
    most_bytes_ = std::max(most_bytes_, bytes);
    if (most_bytes_ - bytes < kWorthwhileBytes || bytes > most_bytes_ / 2) return;
    ::malloc_trim(0);
    most_bytes_ = bytes;
  }

  // Hands the replies of one step to those they are for.
  void route() {
    Session* target = nullptr;
    for (Outgoing& outgoing : replies_) {
      if (target == nullptr || target->id != outgoing.to) target = find(outgoing.to);
      if (target == nullptr) continue;
      target->outbox.add(outgoing.reply);
      if (!std::exchange(target->is_dirty, true)) dirty_.push_back(target->id);
    }
    replies_.clear();
    std::optional<MonoTime> deadline = keyspace_.deadline();
    if (deadline && (!expiry_ || *deadline < *expiry_)) await_expiry(*deadline);
  }

  void await_expiry(MonoTime deadline) {
    expiry_ = deadline;
    expiry_timer_.expires_at(deadline);
    expiry_timer_.async_wait(bound(&Impl::expire));
  }

  void expire() {
    expiry_.reset();
    keyspace_.expire(std::chrono::steady_clock::now(), replies_);
    route();
    flush_all();
  }

  void flush_all() {
    // Closing a client may wake others, who join the list while it is worked off.
    for (std::size_t i = 0; i < dirty_.size(); ++i) {
      Session* session = find(dirty_[i]);
      if (session == nullptr) continue;
      session->is_dirty = false;
      flush(*session);
    }
    dirty_.clear();
    give_memory_back();
  }

  // Sends what the client takes now.  Answers whether that was all; if not, write_to() will go on,
  // or the session is gone.
  bool flush(Session& session) {
    while (!session.outbox.empty()) {
      std::array<std::string_view, kGatheredPieces> pieces;
      std::array<iovec, kGatheredPieces> buffers;
      std::size_t buffer_count = session.outbox.front(pieces);
      for (std::size_t i = 0; i < buffer_count; ++i) {
        buffers[i] = {const_cast<char*>(pieces[i].data()), pieces[i].size()};
      }
      msghdr message{};
      message.msg_iov = buffers.data();
      message.msg_iovlen = buffer_count;
      ssize_t count = ::sendmsg(session.descriptor.native_handle(), &message, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) {
        await_room(session);
        return false;
      }
      if (count < 0) {
        forget(session);
        return false;
      }
      session.outbox.consume(static_cast<std::size_t>(count));
    }
    return true;
  }

  void await_room(Session& session) {
    if (std::exchange(session.awaits_room, true)) return;
    session.descriptor.async_wait(asio::posix::stream_descriptor::wait_write,
                                  bound(&Impl::write_to, session.id));
  }

  void write_to(ClientId id) {
    Session* session = find(id);
    if (session == nullptr) return;
    session->awaits_room = false;
    if (flush(*session) && !session->awaits_bytes) serve(*session);
    account_for(id);
    flush_all();
  }

  Session* find(ClientId id) {
    auto found = sessions_.find(id);
    return found != sessions_.end() ? found->second.get() : nullptr;
  }

  // Closes a client that did something which cannot be answered.
  void drop(Session& session, const std::string& reason) {
    log("disconnected " + peer_of(session.descriptor.native_handle()) + ": " + reason);
    forget(session);
  }

  void forget(Session& session) {
    ClientId id = session.id;
    held_bytes_ -= session.held_bytes;
    sessions_.erase(id);
    keyspace_.disconnect(id, std::chrono::steady_clock::now(), replies_);
    route();
  }

  void log(const std::string& sentence) { log_.line(sentence, std::chrono::steady_clock::now()); }

  asio::any_io_executor executor_;
  ServerConfig config_;
  std::uint16_t port_;
  std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);  // the lifeline

  asio::posix::stream_descriptor listener_;
  asio::steady_timer accept_pause_;
  asio::steady_timer handshake_timer_;
  asio::steady_timer expiry_timer_;
  std::optional<MonoTime> expiry_;                        // what the timer is set to
  std::deque<std::pair<MonoTime, ClientId>> handshakes_;  // who has until when to shake hands

  QuietLog log_;
  Keyspace keyspace_;
  std::size_t most_bytes_ = 0;  // that the keyspace has held since memory was last given back
  std::size_t held_bytes_ = 0;  // of incomplete requests, of all sessions
  std::unordered_map<ClientId, std::unique_ptr<Session>> sessions_;
  ClientId last_id_ = 0;

  // Of one turn.
  std::array<char, kReadBytes> input_;
  Replies replies_;
  std::vector<ClientId> dirty_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  close();
}

Result<std::unique_ptr<Server>> Server::listen(asio::any_io_executor executor,
                                               ServerConfig config) {
  Result<UniqueFd> listener = listen_on(config.listen);
  if (!listener) return listener.error();
  Result<std::uint16_t> port = local_port(listener->get());
  if (!port) return port.error();
  auto impl =
      std::make_unique<Impl>(std::move(executor), std::move(config), std::move(*listener), *port);
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::uint16_t Server::port() const {
  return impl_->port();
}

asio::awaitable<void> Server::stop() {
  close();
  co_await asio::post(impl_->executor(), asio::use_awaitable);
}

void Server::close() {
  impl_->close();
}

std::size_t Server::connection_count() const {
  return impl_->connection_count();
}

const Keyspace& Server::keyspace() const {
  return impl_->keyspace();
}

}  // namespace ddprun::store
