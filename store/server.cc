// SPDX-License-Identifier: BSD-3-Clause
#include "store/server.h"

#include <malloc.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <random>

#include "store/server_impl.h"
#include "store/system_limits.h"

namespace ddprun::store {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// How long to wait before accepting again when the system has no descriptor left.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// So that no client can choose keys which make the table slow.
HashSeed random_seed() {
  std::random_device random;
  auto word = [&] { return std::uint64_t{random()} << 32 | random(); };
  return {.first = word(), .second = word()};
}

}  // namespace

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  close();
}

Result<std::unique_ptr<Server>> Server::listen(asio::any_io_executor executor,
                                               ServerConfig config) {
  Result<UniqueFd> listener = listen_on(config.listen);
  if (!listener) return listener.error();
  return serve(std::move(executor), std::move(*listener), std::move(config));
}

Result<std::unique_ptr<Server>> Server::serve(asio::any_io_executor executor, UniqueFd fd,
                                              ServerConfig config) {
  Result<UniqueFd> listener = take_listener(std::move(fd));
  if (!listener) return listener.error();
  Result<Endpoint> endpoint = local_endpoint(listener->get());
  if (!endpoint) return endpoint.error();
  auto impl = std::make_unique<Impl>(std::move(executor), std::move(config), std::move(*listener),
                                     std::move(*endpoint));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::uint16_t Server::port() const {
  return impl_->endpoint().port;
}

const Endpoint& Server::endpoint() const {
  return impl_->endpoint();
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

void Server::renew_common_space() {
  impl_->renew_common_space();
}

const Spaces& Server::spaces() const {
  return impl_->spaces();
}

const Keyspace& Server::keyspace() const {
  return impl_->spaces().common().keyspace;
}

Server::Impl::Impl(asio::any_io_executor executor, ServerConfig config, UniqueFd listener,
                   Endpoint endpoint)
    : executor_(std::move(executor)),
      config_(std::move(config)),
      endpoint_(std::move(endpoint)),
      listener_(executor_, listener.release()),
      accept_pause_(executor_),
      handshake_timer_(executor_),
      expiry_timer_(executor_),
      log_(config_.log),
      spaces_(config_.keyspace, config_.max_spaces, random_seed()) {
  raise_file_limit();
  std::optional<std::size_t> backlog = longest_backlog();
  if (backlog && *backlog < config_.expected_clients) {
    log("only " + std::to_string(*backlog) +
        " connections can queue up here (net.core.somaxconn); more that come at once wait for "
        "seconds");
  }
  await_connections();
}

void Server::Impl::close() {
  if (!*is_open_) return;
  *is_open_ = false;
  error_code ignored;
  listener_.close(ignored);
  accept_pause_.cancel();
  handshake_timer_.cancel();
  expiry_timer_.cancel();
  sessions_.clear();
}

void Server::Impl::renew_common_space() {
  std::erase_if(sessions_, [this](const auto& entry) {
    const Session& session = *entry.second;
    bool is_member = session.space == &spaces_.common() && session.decoder.is_validated();
    if (is_member) held_bytes_ -= session.held_bytes;
    return is_member;
  });
  spaces_.renew_common();
}

void Server::Impl::await_connections() {
  listener_.async_wait(asio::posix::stream_descriptor::wait_read, bound(&Impl::accept_all));
}

void Server::Impl::accept_all() {
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
void Server::Impl::pause_accepting(int error_number) {
  log(to_string(system_error(error_number, "cannot accept connections for now")));
  accept_pause_.expires_after(kAcceptPause);
  accept_pause_.async_wait(bound(&Impl::accept_all));
}

void Server::Impl::add_session(UniqueFd fd, MonoTime now) {
  if (!config_.allow.empty()) {
    std::string host = peer_host(fd.get());
    if (!config_.allow.admits(host)) return refuse(host);
  }
  if (sessions_.size() >= config_.max_connections) {
    ++figures_.turned_away;
    log("refused " + peer_of(fd.get()) + ": " + std::to_string(sessions_.size()) +
        " connections are open");
    return;
  }
  ClientId id = ++last_id_;
  ++figures_.accepted;
  auto session =
      std::make_unique<Session>(id, executor_, std::move(fd), config_.wire, spaces_.common());
  Session& added = *sessions_.emplace(id, std::move(session)).first->second;
  await_bytes(added);
  handshakes_.emplace_back(now + config_.handshake_timeout, id);
  if (handshakes_.size() == 1) await_handshake();
}

// A stranger costs a line in the log, once.  Of more strangers than are remembered, some may have
// another.
void Server::Impl::refuse(const std::string& host) {
  constexpr std::size_t kRememberedHosts = 1024;
  ++figures_.refused;
  if (refused_hosts_.contains(host)) return;
  if (refused_hosts_.size() >= kRememberedHosts) refused_hosts_.clear();
  refused_hosts_.insert(host);
  log("refused " + host + ": its address is not allowed");
}

void Server::Impl::await_handshake() {
  handshake_timer_.expires_at(handshakes_.front().first);
  handshake_timer_.async_wait(bound(&Impl::close_mute_peers));
}

void Server::Impl::close_mute_peers() {
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

void Server::Impl::await_expiry(MonoTime deadline) {
  expiry_ = deadline;
  expiry_timer_.expires_at(deadline);
  expiry_timer_.async_wait(bound(&Impl::expire));
}

void Server::Impl::expire() {
  expiry_.reset();
  spaces_.expire(std::chrono::steady_clock::now(), replies_);
  route();
  flush_all();
}

Session* Server::Impl::find(ClientId id) {
  auto found = sessions_.find(id);
  return found != sessions_.end() ? found->second.get() : nullptr;
}

// Closes a client that did something which cannot be answered.
void Server::Impl::drop(Session& session, const std::string& reason) {
  ++figures_.disconnected;
  log("disconnected " + peer_of(session.descriptor.native_handle()) + ": " + reason);
  forget(session);
}

void Server::Impl::forget(Session& session) {
  ClientId id = session.id;
  Space& space = *session.space;
  held_bytes_ -= session.held_bytes;
  sessions_.erase(id);
  spaces_.disconnect(id, space, std::chrono::steady_clock::now(), replies_);
  route();
}

// Keeps count of what incomplete requests hold.  When all together hold too much, whoever holds
// most is closed: clients that are served do not hold much for long.
void Server::Impl::account_for(ClientId id) {
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
void Server::Impl::give_memory_back() {
  constexpr std::size_t kWorthwhileBytes = 4 << 20;
  std::size_t bytes = spaces_.usage().bytes;
  most_bytes_ = std::max(most_bytes_, bytes);
  if (most_bytes_ - bytes < kWorthwhileBytes || bytes > most_bytes_ / 2) return;
  ::malloc_trim(0);
  most_bytes_ = bytes;
}

void Server::Impl::log(const std::string& sentence) {
  log_.line(sentence, std::chrono::steady_clock::now());
}

}  // namespace ddprun::store
