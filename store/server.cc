// SPDX-License-Identifier: BSD-3-Clause
#include "store/server.h"

#include <malloc.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <random>

#include "store/clock.h"
#include "store/server_impl.h"
#include "store/system_limits.h"

namespace ddprun::store {
namespace asio = boost::asio;

namespace {

// How long to wait before accepting again when the system has no descriptor left.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// So that no client can choose keys which make the table slow.
HashSeed random_seed() {
  std::random_device random;
  auto word = [&] { return std::uint64_t{random()} << 32 | random(); };
  return {.first = word(), .second = word()};
}

// How many connections are accepted in one turn, at most: so many that a burst does not overflow
// the kernel's queue, and so few that those who are connected hardly notice.
constexpr int kAcceptedPerTurn = 1024;

// How many descriptors are closed before others have their turn.  The system takes 10 us for each,
// so thousands of clients that leave at once would keep everybody else waiting.
constexpr int kClosedInARow = 32;

// How many turns are taken before the executor's other work has its chance.
constexpr int kTurnsInARow = 16;

// Freed memory beyond this is to be given back to the system.
constexpr std::size_t kWorthwhileBytes = 4 << 20;

// Lets malloc keep as much before it gives back on its own accord, which it does else with every
// large reply that has been sent: a seventh of the time of a MULTI_GET.
void let_malloc_keep_some() {
  ::mallopt(M_TRIM_THRESHOLD, int{kWorthwhileBytes});
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

// What the poller knows the listening socket by; clients count from 1.
constexpr ClientId kListener = 0;

}  // namespace

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  close();
}

Result<std::unique_ptr<Server>> Server::listen(asio::any_io_executor executor,
                                               ServerConfig config) {
  Result<Fd> listener = listen_on(config.listen);
  if (!listener) return listener.error();
  return serve(std::move(executor), std::move(*listener), std::move(config));
}

Result<std::unique_ptr<Server>> Server::serve(asio::any_io_executor executor, Fd fd,
                                              ServerConfig config) {
  Result<Fd> listener = take_listener(std::move(fd));
  if (!listener) return listener.error();
  Result<Endpoint> endpoint = local_endpoint(listener->get());
  if (!endpoint) return endpoint.error();
  Result<Fd> epoll_set = Poller::make_set();
  if (!epoll_set) return epoll_set.error();
  auto impl = std::make_unique<Impl>(std::move(executor), std::move(config), std::move(*listener),
                                     std::move(*epoll_set), std::move(*endpoint));
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

void Server::renew_common_namespace() {
  impl_->renew_common_namespace();
}

const Namespaces& Server::namespaces() const {
  return impl_->namespaces();
}

Result<Fd> Server::connect() {
  return impl_->connect();
}

void Server::reserve_namespace(std::string name) {
  impl_->reserve_namespace(std::move(name));
}

const Keyspace& Server::keyspace() const {
  return impl_->namespaces().common().keyspace;
}

Server::Impl::Impl(asio::any_io_executor executor, ServerConfig config, Fd listener, Fd epoll_set,
                   Endpoint endpoint)
    : executor_(std::move(executor)),
      config_(std::move(config)),
      endpoint_(std::move(endpoint)),
      poller_(executor_, std::move(epoll_set)),
      listener_(std::move(listener)),
      accept_pause_(executor_),
      handshake_timer_(executor_),
      expiry_timer_(executor_),
      stall_timer_(executor_),
      log_(config_.log),
      namespaces_(config_.keyspace, config_.max_namespaces, random_seed()) {
  raise_file_limit();
  std::optional<std::size_t> backlog = longest_backlog();
  if (backlog && *backlog < config_.expected_clients) {
    log("only " + std::to_string(*backlog) +
        " connections can queue up here (net.core.somaxconn); more that come at once wait for "
        "seconds");
  }
  let_malloc_keep_some();
  resume_accepting();
  await_events();
}

void Server::Impl::close() {
  if (!*is_open_) return;
  *is_open_ = false;
  poller_.close();
  listener_ = Fd();
  accept_pause_.cancel();
  handshake_timer_.cancel();
  expiry_timer_.cancel();
  stall_timer_.cancel();
  sessions_.clear();
  closing_.clear();
}

void Server::Impl::renew_common_namespace() {
  std::erase_if(sessions_, [this](const auto& entry) {
    Session& session = *entry.second;
    bool is_member = session.ns == &namespaces_.common() && session.decoder.is_validated();
    if (is_member) {
      held_bytes_ -= session.held_bytes;
      if (session.is_own()) --own_count_;
      if (session.fd) close_later(std::move(session.fd));
    }
    return is_member;
  });
  namespaces_.renew_common();
  expected_clients_.clear();
}

void Server::Impl::await_events() {
  poller_.async_wait(bound(&Impl::take_turns));
}

// Where several were ready at once, more are by the end of the turn, as a rule; to look again is
// cheaper than to go by way of Asio.
void Server::Impl::take_turns() {
  for (int i = 0; i < kTurnsInARow; ++i) {
    std::span<const Poller::Ready> ready = poller_.ready();
    take_turn(ready);
    if (ready.size() <= 1) break;
  }
  await_events();
}

// Reads from all that have something to say, and then answers all: a client that is answered for
// two reasons is sent one segment.
void Server::Impl::take_turn(std::span<const Poller::Ready> ready) {
  for (const Poller::Ready& event : ready) {
    if (event.id == kListener) {
      accept_some();
      continue;
    }
    Session* session = find(event.id);
    if (session != nullptr && event.is_writable && session->interest.writable) {
      write_to(*session);
      session = find(event.id);
    }
    if (session != nullptr && event.is_readable && session->interest.readable) read_from(*session);
  }
  flush_all();
}

void Server::Impl::accept_some() {
  MonoTime now = mono_now();
  for (int i = 0; i < kAcceptedPerTurn; ++i) {
    Fd fd = accept_from(listener_.get());
    if (fd) {
      add_session(std::move(fd), now);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EMFILE && !closing_.empty()) {
      close_some();
    } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
      return pause_accepting(errno);
    }
  }
}

// The system is short of something, of descriptors as a rule; those who connect wait meanwhile.
void Server::Impl::pause_accepting(int error_number) {
  log(to_string(system_error(error_number, "cannot accept connections for now")));
  poller_.remove(listener_.get());
  accept_pause_.expires_after(kAcceptPause);
  accept_pause_.async_wait(bound(&Impl::resume_accepting));
}

void Server::Impl::resume_accepting() {
  if (!poller_.add(listener_.get(), kListener)) pause_accepting(errno);
}

void Server::Impl::add_session(Fd fd, MonoTime now) {
  if (!config_.allow.empty()) {
    std::string host = peer_host(fd.get());
    if (!config_.allow.admits(host)) return refuse(host);
  }
  admit(std::move(fd), now, false);
}

// The limits are for others than this process itself.
void Server::Impl::admit(Fd fd, MonoTime now, bool is_own) {
  if (!is_own && connection_count() >= config_.max_connections) {
    ++metrics_.turned_away;
    log("refused " + peer_of(fd.get()) + ": " + std::to_string(connection_count()) +
        " connections are open");
    return;
  }
  ClientId id = ++last_id_ + (is_own ? kFirstOwnClient : 0);
  if (!poller_.add(fd.get(), id)) {
    log("refused " + peer_of(fd.get()) + ": " + to_string(system_error(errno, "watch it")));
    return;
  }
  auto session = std::make_unique<Session>(id, std::move(fd), is_own ? own_limits_ : config_.wire,
                                           namespaces_.common());
  if (is_own) {
    ++own_count_;
  } else {
    ++metrics_.accepted;
  }
  sessions_.emplace(id, std::move(session));
  handshakes_.emplace_back(now + config_.handshake_timeout, id);
  if (handshakes_.size() == 1) await_handshake();
}

Result<Fd> Server::Impl::connect() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    return system_error(errno, "connect within the process");
  }
  Fd theirs(ends[0]);
  admit(Fd(ends[1]), mono_now(), true);
  return theirs;
}

// A stranger costs a line in the log, once.  Of more strangers than are remembered, some may have
// another.
void Server::Impl::refuse(const std::string& host) {
  constexpr std::size_t kRememberedHosts = 1024;
  ++metrics_.refused;
  if (refused_hosts_.contains(host)) return;
  if (refused_hosts_.size() >= kRememberedHosts) refused_hosts_.clear();
  refused_hosts_.insert(host);
  log("refused " + host + ": its address is not allowed");
}

void Server::Impl::await_handshake() {
  handshake_timer_.expires_at(handshakes_.front().first);
  handshake_timer_.async_wait(bound(&Impl::close_unvalidated));
}

void Server::Impl::close_unvalidated() {
  MonoTime now = mono_now();
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
  namespaces_.expire(mono_now(), replies_);
  route();
  flush_all();
}

Session* Server::Impl::find(ClientId id) {
  auto found = sessions_.find(id);
  return found != sessions_.end() ? found->second.get() : nullptr;
}

// Closes a client that did something which cannot be answered.
void Server::Impl::drop(Session& session, const std::string& reason) {
  if (!session.fd) return forget(session);
  ++metrics_.disconnected;
  log("disconnected " + peer_of(session.fd.get()) + ": " + reason);
  forget(session);
}

void Server::Impl::forget(Session& session) {
  ClientId id = session.id;
  Namespace& ns = *session.ns;
  held_bytes_ -= std::exchange(session.held_bytes, 0);
  if (session.fd) close_later(std::move(session.fd));
  if (session.is_busy) return;  // finish() goes on from here
  if (session.is_own()) --own_count_;
  sessions_.erase(id);
  expected_clients_.forget(id);
  namespaces_.disconnect(id, ns, mono_now(), replies_);
  route();
}

// Closes the connection before long; from now on it tells nothing.
void Server::Impl::close_later(Fd fd) {
  poller_.remove(fd.get());
  closing_.push_back(std::move(fd));
  if (closing_.size() == 1) asio::post(executor_, bound(&Impl::close_more));
}

// Between two calls the executor looks after everybody else.
void Server::Impl::close_more() {
  close_some();
  if (!closing_.empty()) asio::post(executor_, bound(&Impl::close_more));
}

void Server::Impl::close_some() {
  for (int i = 0; i < kClosedInARow && !closing_.empty(); ++i) closing_.pop_front();
}

// Keeps count of what incomplete requests hold.  When all together hold too much, whoever holds
// most is closed: clients that are served do not hold much for long.
void Server::Impl::account_for(ClientId id) {
  Session* asking = find(id);
  if (asking != nullptr && asking->fd && !asking->is_own()) {
    std::size_t held = asking->decoder.held_bytes();
    held_bytes_ += held - std::exchange(asking->held_bytes, held);
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
  std::size_t bytes = namespaces_.usage().bytes;
  most_bytes_ = std::max(most_bytes_, bytes);
  if (most_bytes_ - bytes < kWorthwhileBytes || bytes > most_bytes_ / 2) return;
  ::malloc_trim(0);
  most_bytes_ = bytes;
}

void Server::Impl::log(const std::string& sentence) {
  log_.line(sentence, mono_now());
}

}  // namespace ddprun::store
