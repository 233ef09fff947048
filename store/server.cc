// SPDX-License-Identifier: BSD-3-Clause
#include "store/server.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <random>

#include "store/clock.h"
#include "store/decide/effort.h"
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

// How many connections are accepted although the turn is over: so many that a burst does not
// overflow the kernel's queue, and so few that connected clients hardly notice.
constexpr int kLeastAccepted = 16;

// How many turns are taken before the executor's other work has its chance.
constexpr int kTurnsInARow = 16;

// Descriptors that are no connections: of logs, timers, workers.
constexpr std::size_t kOtherDescriptors = 64;

// A client that has sent so much of one request is not read from when the turn is over.
constexpr std::size_t kLargeHeldBytes = 128 << 10;

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

Result<std::unique_ptr<Server>> Server::serve(asio::any_io_executor executor, Fd listener,
                                              ServerConfig config) {
  Result<Fd> taken = take_listener(std::move(listener));
  if (!taken) return taken.error();
  Result<Endpoint> endpoint = local_endpoint(taken->get());
  if (!endpoint) return endpoint.error();
  Result<Fd> epoll_set = Poller::make_set();
  if (!epoll_set) return epoll_set.error();
  auto impl = std::make_unique<Impl>(std::move(executor), std::move(config), std::move(*taken),
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

bool Server::asks_for_secret() const {
  return impl_->asks_for_secret();
}

std::size_t Server::connection_count() const {
  return impl_->connection_count();
}

void Server::renew_common_namespace(std::optional<Gate> gate) {
  impl_->renew_common_namespace(std::move(gate));
}

const Namespaces& Server::namespaces() const {
  return impl_->namespaces();
}

Result<Fd> Server::connect(std::size_t secret) {
  return impl_->connect(secret);
}

std::string Server::value_of(std::string_view reserved_name, std::size_t secret,
                             std::string_view key) const {
  return impl_->value_of(reserved_name, secret, key);
}

void Server::show(const PageSource* source) {
  impl_->show(source);
}

void Server::reserve_namespace(std::string name) {
  impl_->reserve_namespace(std::move(name));
}

void Server::keep_own(OwnNames names) {
  impl_->keep_own(std::move(names));
}

void Server::stamp_queues(std::string beginning) {
  impl_->stamp_queues(std::move(beginning));
}
std::vector<ExpectedClients::Missing> Server::missing_clients(std::size_t max_count) {
  return impl_->missing_clients(max_count);
}

JoinProgress Server::join_progress() {
  return impl_->join_progress();
}
std::vector<Waiter> Server::waiters() const {
  return impl_->waiters();
}
std::optional<MonoTime> Server::all_connected_at() {
  return impl_->all_connected_at();
}
std::size_t Server::longest_turn() const {
  return impl_->longest_turn();
}
std::size_t Server::unfreed_bytes() const {
  return impl_->unfreed_bytes();
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
      expiry_timer_(executor_),
      stalls_(executor_),
      handshakes_(executor_),
      follow_timer_(executor_),
      log_(executor_, config_.log),
      namespaces_(config_.keyspace, config_.max_namespaces, random_seed()) {
  raise_file_limit();
  max_connections_ = std::min(config_.max_all_connections,
                              file_limit() - std::min(file_limit() / 2, kOtherDescriptors));
  max_clients_ = std::min(config_.max_connections, max_connections_ / 8 * 7);
  max_strangers_ = max_clients_ + std::max<std::size_t>(max_clients_ / 8, 1);
  std::optional<std::size_t> backlog = longest_backlog();
  if (backlog && *backlog < config_.expected_clients) {
    log("only " + std::to_string(*backlog) +
        " connections can queue up here (net.core.somaxconn); more that come at once wait for "
        "seconds");
  }
  if (config_.gate) find_owners(*config_.gate);
  resume_accepting();
  await_events();
}

void Server::Impl::find_owners(const Gate& gate) {
  if (gate.any_user || owners_.can_answer()) return;
  owners_ = SocketOwners(listener_.get());
  if (!owners_.can_answer())
    log("this system does not say whose connections these are: all users of this machine can "
        "connect");
}

void Server::Impl::close() {
  if (!*is_open_) return;
  *is_open_ = false;
  poller_.close();
  listener_ = Fd();
  accept_pause_.cancel();
  handshakes_.timer.cancel();
  follow_timer_.cancel();
  expiry_timer_.cancel();
  stalls_.timer.cancel();
  log_.close();
  sessions_.clear();
  closing_.close_all();
}

void Server::Impl::renew_common_namespace(std::optional<Gate> gate) {
  UnfreedMemory::Scope scope(unfreed_);
  common_gate_ = std::move(gate);
  if (common_gate_) find_owners(*common_gate_);
  auto is_member = [this](const Session& session) {
    return session.ns == &namespaces_.common() && session.decoder.is_validated();
  };
  sessions_.remove_if(is_member, [this](Session& session) {
    if (session.fd) close_later(std::move(session.fd));
  });
  sessions_.for_each([](Session& session) { session.is_admitted = false; });  // by the gate before
  namespaces_.renew_common();
  keep_working();
  status_.expected.clear();
}

void Server::Impl::await_events() {
  poller_.async_wait(bound(&Impl::take_turns));
}

// Where several were ready at once, more are by the end of the turn, as a rule; to look again is
// cheaper than to go by way of Asio.
void Server::Impl::take_turns() {
  turn_.begin();
  for (int i = 0; i < kTurnsInARow; ++i) {
    std::span<const Poller::Ready> ready = poller_.ready();
    take_turn(ready);
    if (ready.size() <= 1) break;
  }
  await_events();
}

// Reads from all that have something to say, and then answers all: a client that is answered for
// two reasons is sent one segment.  When the turn is over, those who leave or send something large
// wait for another; so that it is not always the same that wait, each begins elsewhere.
void Server::Impl::take_turn(std::span<const Poller::Ready> ready) {
  std::size_t first = ready.empty() ? 0 : turn_count_++ % ready.size();
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const Poller::Ready& event = ready[(first + i) % ready.size()];
    if (event.id == kListener) {
      accept_some();
      continue;
    }
    Session* session = find(event.id);
    if (session != nullptr && event.is_writable && session->interest.writable) {
      write_to(*session);
      session = find(event.id);
    }
    if (session == nullptr || !event.is_readable || !session->interest.readable) continue;
    bool can_wait = event.has_ended || session->decoder.held_bytes() > kLargeHeldBytes;
    if (!can_wait || !turn_.is_over()) read_from(*session);
  }
  flush_all();
}

void Server::Impl::accept_some() {
  MonoTime now = mono_now();
  for (int i = 0; i < kLeastAccepted || !turn_.is_over(); ++i) {
    Fd fd = accept_from(listener_.get());
    turn_.spend(effort::kAccept);
    if (fd) {
      add_session(std::move(fd), now);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EMFILE && !closing_.empty()) {
      closing_.close_some();
    } else if (errno != ECONNABORTED && errno != EINTR && errno != EPROTO) {
      return pause_accepting(errno);
    }
  }
}

// The system is short of a resource, usually of descriptors.  New connections wait meanwhile.
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
  if (std::optional<Refusal> refusal = why_refused(fd.get())) return refuse(*refusal);
  admit(std::move(fd), now, false);
}

std::optional<Refusal> Server::Impl::why_refused(int fd) {
  if (config_.allow.empty() && !config_.gate) return std::nullopt;
  std::string host = peer_host(fd);
  if (!config_.allow.admits(host)) return not_allowed(host);
  return config_.gate ? why_refused_at(*config_.gate, fd, host) : std::nullopt;
}

std::optional<Refusal> Server::Impl::why_refused_at(const Gate& gate, int fd,
                                                    const std::string& host) {
  Result<Endpoint> reached = local_endpoint(fd);
  if (!is_this_machine(gate, host, reached ? reached->host : ""))
    return store::why_refused(gate, host);
  return gate.any_user ? std::nullopt : store::why_refused(gate, owners_.peer_of(fd));
}

// Closes the oldest of those that have asked for nothing.
bool Server::Impl::make_room() {
  Session* guest = sessions_.oldest_guest();
  if (guest == nullptr) return false;
  ++status_.metrics.turned_away;
  drop(*guest, "it has asked for nothing, and others need the room");
  return true;
}

bool Server::Impl::make_room_for(const std::string& host) {
  if (make_room()) return true;
  Session* last = sessions_.gives_way(host, max_connections_);
  if (last == nullptr) return false;
  ++status_.metrics.turned_away;
  drop(*last, "very many connections come from its address or network, and others need the room");
  return true;
}

// The limits are for others than this process itself.
void Server::Impl::admit(Fd fd, MonoTime now, bool is_own) {
  std::size_t strangers = sessions_.count(Standing::Guest) + sessions_.count(Standing::Client);
  if (!is_own && strangers >= max_strangers_) make_room();
  bool is_full = sessions_.client_count() >= max_connections_;
  if (!is_own && is_full && !make_room_for(peer_host(fd.get()))) {
    ++status_.metrics.turned_away;
    return log("refused " + peer_of(fd.get()) + ": " + std::to_string(max_connections_) +
               " connections are open");
  }
  ClientId id = ++last_id_ + (is_own ? kFirstOwnClient : 0);
  if (!poller_.add(fd.get(), id)) {
    log("refused " + peer_of(fd.get()) + ": " + to_string(system_error(errno, "watch it")));
    return;
  }
  auto session = std::make_unique<Session>(id, std::move(fd), is_own ? own_limits_ : config_.wire,
                                           namespaces_.common());
  if (!is_own) ++status_.metrics.accepted;
  sessions_.add(std::move(session));
  handshakes_.clients.emplace_back(now + config_.handshake_timeout, id);
  if (handshakes_.clients.size() == 1) await_handshake();
}

Result<Fd> Server::Impl::connect(std::size_t secret) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    return system_error(errno, "connect within the process");
  }
  Fd theirs(ends[0]);
  admit(Fd(ends[1]), mono_now(), true);
  if (Session* session = find(last_id_ + kFirstOwnClient)) session->secret = secret;
  return theirs;
}

// A stranger costs a line in the log, once for each reason.  Of more strangers than are remembered,
// some may have another.
void Server::Impl::refuse(const Refusal& refusal) {
  constexpr std::size_t kRememberedPeers = 1024;
  ++status_.metrics.refused;
  if (refusal.why.empty()) return;
  std::string sentence = "refused " + refusal.peer + ": " + refusal.why;
  if (refusals_.contains(sentence)) return;
  if (refusals_.size() >= kRememberedPeers) refusals_.clear();
  log(sentence);
  refusals_.insert(std::move(sentence));
}

void Server::Impl::await_handshake() {
  handshakes_.timer.expires_at(handshakes_.clients.front().first);
  handshakes_.timer.async_wait(bound(&Impl::close_unvalidated));
}

void Server::Impl::close_unvalidated() {
  turn_.begin();
  MonoTime now = mono_now();
  while (!turn_.is_over()) {
    std::optional<ClientId> id = handshakes_.take_due(now);
    if (!id) break;
    Session* session = find(*id);
    if (session == nullptr || session->is_own() || session->follows) continue;
    if (session->http && session->closes_when_flushed) continue;  // it reads its page
    bool must_seal = !config_.serves_strangers && !session->http;
    if (!session->decoder.is_validated() || (must_seal && !session->is_sealed())) {
      drop(*session, "no handshake in time");
    } else if (session->standing == Standing::Entered) {
      drop(*session, "it has asked for nothing in time");
    }
  }
  if (!handshakes_.clients.empty()) await_handshake();
  flush_all();
}

void Server::Impl::await_expiry(MonoTime deadline) {
  expiry_ = deadline;
  expiry_timer_.expires_at(deadline);
  expiry_timer_.async_wait(bound(&Impl::expire));
}

void Server::Impl::expire() {
  turn_.begin();
  expiry_.reset();
  namespaces_.expire(mono_now(), replies_);
  route();
  flush_all();
}

// Closes a client that did something which cannot be answered.
void Server::Impl::drop(Session& session, const std::string& reason) {
  if (!session.fd) return forget(session);
  ++status_.metrics.disconnected;
  log("disconnected " + peer_of(session.fd.get()) + ": " + reason);
  forget(session);
}

void Server::Impl::forget(Session& session) {
  ClientId id = session.id;
  Namespace& ns = *session.ns;
  turn_.spend(effort::kForget);
  sessions_.forget_held(session);
  if (session.fd) close_later(std::move(session.fd));
  session.outbox = Outbox();
  if (session.follows) status_.unfollow(id);
  if (session.is_busy) return;  // finish() goes on from here
  status_.expected.forget(id);
  let_will_wait(session);
  sessions_.remove(session);
  namespaces_.disconnect(id, ns, mono_now(), replies_);
  route();
}

// Closes the connection soon.  It causes no more events.
void Server::Impl::close_later(Fd fd) {
  poller_.remove(fd.get());
  closing_.add(std::move(fd));
  if (closing_.size() == 1) asio::post(executor_, bound(&Impl::close_more));
}

// Between two calls the executor serves all others.
void Server::Impl::close_more() {
  closing_.close_some();
  if (!closing_.empty()) asio::post(executor_, bound(&Impl::close_more));
}

// Keeps count of what incomplete requests and unread replies hold; here and not at the end of the
// turn, in which thousands may ask for much.  When all requests together hold too much, the client
// that holds most is closed: clients that are served do not hold much for long.
void Server::Impl::account_for(ClientId id) {
  limit_unread(id);
  Session* asking = find(id);
  if (asking != nullptr && asking->fd && !asking->is_own()) {
    sessions_.count_held(*asking);
  }
  while (sessions_.held_bytes() > config_.max_held_bytes) {
    Session& session = sessions_.largest_holder();
    drop(session, "holds " + std::to_string(session.held_bytes) +
                      " bytes of an incomplete request, and all together too much");
  }
}

void Server::Impl::log(const std::string& sentence) {
  log_.line_once(sentence);
}

}  // namespace ddprun::store
