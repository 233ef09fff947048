// SPDX-License-Identifier: BSD-3-Clause
//
// What happens on a connection of the server: bytes in, requests carried out, replies out.
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <utility>

#include "store/clock.h"
#include "store/decide/effort.h"
#include "store/server_impl.h"

namespace ddprun::store {
namespace asio = boost::asio;

namespace {

// Replies of so many bytes do not wait for the end of the turn.
constexpr std::size_t kSentAtOnceBytes = 16 * 1024;

// A client that reads as fast as it is sent to is sent so much before others have their turn.
constexpr std::size_t kSentInARow = 2 << 20;

// And when a turn is over, so much.
constexpr std::size_t kReadLate = 16 * 1024;
constexpr std::size_t kSentLate = 64 * 1024;

// A client whose requests cost more than this in one turn is served the rest of them later, and
// when the turn is over one whose requests cost more than the least.  A request that costs no more
// than the least is never deferred on its own account.
constexpr std::size_t kShare = Turn::kEffort / 2;
constexpr std::size_t kLeastShare = 64;

// So many clients that others have woken are told so, whatever else was done in the turn.
constexpr int kLeastWoken = 64;

// A large request is carried out for as much as so many names cost, about half a millisecond,
// before others have their turn.
constexpr std::size_t kEffortInARow = 2048;

// A piece of memory is freed in about half a millisecond.  Counted for less, so that others are
// served beside a large request and this.
constexpr std::size_t kEffortToFree = kEffortInARow / 2;

// One write gathers up to this many pieces.
constexpr std::size_t kGatheredPieces = 128;

// Sends the first pieces with one call, `most` bytes at most; a single piece by the one that costs
// least.
ssize_t send_from(const Outbox& outbox, int fd, std::size_t most) {
  if (outbox.piece_count() == 1 || outbox.front().size() >= most) {
    std::string_view piece = outbox.front().substr(0, most);
    return ::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL);
  }
  std::array<std::string_view, kGatheredPieces> pieces;
  std::size_t piece_count = outbox.front(pieces);
  std::array<iovec, kGatheredPieces> buffers;
  for (std::size_t i = 0; i < piece_count; ++i) {
    std::string_view piece = pieces[i].substr(0, most);
    most -= piece.size();
    buffers[i] = {const_cast<char*>(piece.data()), piece.size()};
    if (most == 0) piece_count = i + 1;
  }
  msghdr message{};
  message.msg_iov = buffers.data();
  message.msg_iovlen = piece_count;
  return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

// Whether a connection does not say by it what it is there for.
bool is_on_its_way(const Request& request) {
  return std::holds_alternative<request::Validate>(request) ||
         std::holds_alternative<request::Ping>(request) ||
         std::holds_alternative<request::Probe>(request) || is_about_connection(request);
}

bool begins_like_http(std::string_view bytes) {
  return !bytes.empty() && bytes[0] >= 'A' && bytes[0] <= 'Z';
}

}  // namespace

void Server::Impl::watch_for(Session& session, Poller::Interest interest) {
  if (session.interest == interest) return;
  session.interest = interest;
  poller_.change(session.fd.get(), session.id, interest);
}

void Server::Impl::stop_reading(Session& session) {
  watch_for(session, {.readable = false, .writable = session.interest.writable});
}

// Once a turn: that also bounds the time that one client may take before others get theirs.
void Server::Impl::read_from(Session& session) {
  ClientId id = session.id;
  std::size_t most = turn_.is_over() ? kReadLate : input_.size();
  ssize_t count = ::recv(session.fd.get(), input_.data(), most, 0);
  turn_.spend(effort::kRead);
  if (count > 0) {
    turn_.spend(static_cast<std::size_t>(count) / effort::kBytes);
    take(session, {input_.data(), static_cast<std::size_t>(count)});
    account_for(id);
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    forget(session);
  }
}

void Server::Impl::take(Session& session, std::string_view bytes) {
  bool is_new = !session.decoder.is_validated() && session.decoder.held_bytes() == 0;
  if (is_new && !session.http && config_.serves_http && begins_like_http(bytes)) {
    session.http = std::make_unique<HttpReader>();
  }
  if (session.http) return serve_http(session, bytes);
  if (!config_.serves_clients && !session.is_own())
    return drop(session, "there are only pages here, and it does not ask for one");
  if (session.is_sealed()) {
    opened_.clear();
    if (!session.security->stream->open(bytes, opened_))
      return drop(session, "sent what its own end has not sealed");
    bytes = opened_;
  }
  std::size_t held = session.decoder.held_bytes();
  session.decoder.feed(bytes);
  bool is_moved = held > 0 && session.decoder.held_bytes() > held;  // to where there is more room
  if (is_moved) turn_.spend(held / effort::kBytes);
  serve(session);
}

// Carries out what has arrived from a client, as long as it reads its replies.
void Server::Impl::serve(Session& session) {
  MonoTime now = mono_now();
  ClientId id = session.id;
  std::size_t before = turn_.spent();
  for (;;) {
    std::size_t share = turn_.is_over() ? kLeastShare : kShare;
    if (turn_.spent() - before > share && session.decoder.has_more()) return defer(session, {});
    if (session.outbox.size() > config_.max_unread_bytes && !flush(session)) {
      if (Session* stalled = find(id)) {
        stalled->decoder.keep();
        watch_for(*stalled, {.readable = false, .writable = true});
        stall(*stalled);
      }
      return;  // write_to() goes on from here
    }
    Decoder::Next next = session.decoder.next();
    if (std::holds_alternative<Decoder::NeedMore>(next)) {
      // Not at the end of the turn: a large reply is hot in the cache now, and holds memory.
      if (session.outbox.size() >= kSentAtOnceBytes) flush(session);
      return;
    }
    if (auto* malformed = std::get_if<Decoder::Malformed>(&next)) {
      return drop(session, malformed->reason);
    }
    const Request& request = std::get<Request>(next);
    bool is_asked = common_gate_ && !session.is_admitted && concerns_common(session, request);
    if (is_asked && !may_use_common_namespace(session, request)) return forget(session);
    if (!is_settled(session) && !settle(session, request)) return;
    status_.note(session, request);
    if (is_about_connection(request) && serve_connection(session, request)) {
      if (find(id) == nullptr || session.closes_when_flushed) return;
      continue;
    }
    if (session.ns->is_reserved && !session.is_own() && is_for_own_only(own_names_, request))
      return drop(session, "asked for what is the host's own");
    const Keyspace& keyspace = session.ns->keyspace;
    std::size_t effort = keyspace.effort_of(request);
    if (must_wait_for_memory(session, request)) return defer(session, request);
    note_inbox(session, request);
    if (must_wait_for_turn(session, request)) {
      await_turn(session, request);
      if (session.is_deferred) return;
      continue;
    }
    if (keyspace.is_large(request, effort)) return enqueue(session);
    if (effort > kLeastShare && turn_.is_half_over()) return defer(session, request);
    if (!carry_out(session, request, effort, now)) return;
  }
}

// Answers whether the client is still there.
bool Server::Impl::carry_out(Session& session, const Request& request, std::size_t effort,
                             MonoTime now) {
  turn_.spend(effort);
  std::optional<Request> stamped = with_stamp(session, request);
  auto fault =
      namespaces_.execute(session.id, session.ns, stamped ? *stamped : request, now, replies_);
  route(&session);
  if (fault) drop(session, *fault);
  return !fault;
}

// Goes on with a client later, after others that wait as well: with `request`, if there is one, or
// with what has arrived behind the last one.
void Server::Impl::defer(Session& session, const std::optional<Request>& request) {
  std::optional<Request> held;
  if (request) {
    held = session.decoder.hold();
  } else {
    session.decoder.keep();
  }
  session.is_deferred = true;
  stop_reading(session);
  if (session.outbox.size() >= kSentAtOnceBytes) note_due(session, Due::Asked);
  deferred_.push_back({session.id, held});
  keep_working();
}

void Server::Impl::resume_some() {
  for (std::size_t left = deferred_.size(); left > 0 && !turn_.is_half_over(); --left) {
    Deferred next = std::move(deferred_.front());
    deferred_.pop_front();
    if (Session* session = find(next.client)) resume(*session, next.request);
  }
}

bool Server::Impl::must_wait_for_memory(const Session& session, const Request& request) const {
  return unfreed_.bytes() > 0 &&
         namespaces_.must_wait_for(unfreed_.bytes(), session.id, *session.ns, request);
}

// `has_turn`: it has waited for its turn to push, and this is it.
void Server::Impl::resume(Session& session, const std::optional<Request>& request, bool has_turn) {
  ClientId id = session.id;
  session.is_deferred = false;
  if (request) {
    if (must_wait_for_memory(session, *request)) return defer(session, request);
    if (!has_turn && must_wait_for_turn(session, *request)) {
      await_turn(session, *request);
      if (session.is_deferred) return;
    } else {
      std::size_t effort = session.ns->keyspace.effort_of(*request);
      if (session.ns->keyspace.is_large(*request, effort)) return enqueue(session);
      if (!carry_out(session, *request, effort, mono_now())) return;
    }
  }
  serve(session);
  Session* served = find(id);
  bool is_read_from = served != nullptr && served->fd && !served->is_deferred && !served->is_busy &&
                      served->stalled_bytes == 0 && !served->closes_when_flushed;
  if (is_read_from) watch_for(*served, {.readable = true, .writable = served->interest.writable});
  account_for(id);
}

// Whether it is known what a connection is there for.  One that has left a reserved namespace is to
// say it anew.
bool Server::Impl::is_settled(const Session& session) {
  switch (session.standing) {
    case Standing::Guest:
    case Standing::Entered:
      return false;
    case Standing::Client:
      return true;
    case Standing::RunNode:
      return session.ns->is_reserved;
  }
  return true;
}

// What a connection is there for, by its first request.  Whether it may stay; if not, it is gone.
bool Server::Impl::settle(Session& session, const Request& request) {
  bool is_handshake = std::holds_alternative<request::Authenticate>(request) ||
                      std::holds_alternative<request::Prove>(request);
  if (session.security && !session.is_sealed() && !is_handshake) {
    drop(session, "asked for something in the middle of a handshake");
    return false;
  }
  if (is_on_its_way(request)) return true;
  if (!config_.serves_strangers && !session.is_own() && !session.is_sealed()) {
    refuse(
        {.peer = peer_host(session.fd.get()), .why = "it has not shown that it knows the secret"});
    forget(session);
    return false;
  }
  bool is_node = session.ns->is_reserved;
  if (!is_node && !session.is_own() && sessions_.count(Standing::Client) >= max_clients_) {
    ++status_.metrics.turned_away;
    drop(session, std::to_string(max_clients_) + " connections are open, so it is refused");
    return false;
  }
  sessions_.set_standing(session, is_node ? Standing::RunNode : Standing::Client);
  return true;
}

// An announcement is about clients of the common namespace, wherever it is made.
bool Server::Impl::concerns_common(const Session& session, const Request& request) {
  if (session.ns == &namespaces_.common()) return true;
  return std::holds_alternative<request::Expect>(request) && !session.is_sealed();
}

// A node that enters the namespace of the rendezvous begins in the common one.
bool Server::Impl::may_use_common_namespace(Session& session, const Request& request) {
  if (is_on_its_way(request) || session.is_own()) return true;
  int fd = session.fd.get();
  std::optional<Refusal> refusal = why_refused_at(*common_gate_, fd, peer_host(fd));
  if (refusal) refuse(*refusal);
  session.is_admitted = !refusal;
  return session.is_admitted;
}

// A client is not read from until it reads.
void Server::Impl::stall(Session& session) {
  session.stalled_since = mono_now();
  session.stalled_bytes = std::max<std::size_t>(session.outbox.size(), 1);
  stalls_.clients.emplace_back(session.stalled_since + config_.unread_timeout, session.id);
  if (stalls_.clients.size() == 1) await_stall();
}

void Server::Impl::await_stall() {
  stalls_.timer.expires_at(stalls_.clients.front().first);
  stalls_.timer.async_wait(bound(&Impl::close_stalled));
}

// Closes the clients that have read nothing since the last look at them.
void Server::Impl::close_stalled() {
  turn_.begin();
  MonoTime now = mono_now();
  while (!turn_.is_over()) {
    std::optional<ClientId> id = stalls_.take_due(now);
    if (!id) break;
    Session* session = find(*id);
    bool is_due = session != nullptr && session->stalled_bytes > 0 &&
                  session->stalled_since + config_.unread_timeout <= now;
    if (!is_due) continue;
    if (session->outbox.size() < session->stalled_bytes) {
      stall(*session);
    } else {
      drop(*session,
           "leaves " + std::to_string(session->outbox.size()) + " bytes of replies unread");
    }
  }
  if (!stalls_.clients.empty()) await_stall();
  flush_all();
}

// Its last request is a large one.
void Server::Impl::enqueue(Session& session) {
  Request held = session.decoder.hold();
  session.is_busy = true;
  stop_reading(session);
  namespaces_.enqueue(session.id, *session.ns, held);
  keep_working();
}

void Server::Impl::keep_working() {
  bool has_work = namespaces_.has_work() || status_.is_making() || !deferred_.empty() ||
                  !woken_.empty() || unfreed_.bytes() > 0 || has_turns();
  if (!has_work || std::exchange(is_working_, true)) return;
  asio::post(executor_, bound(&Impl::work_on));
}

// Between two calls the executor serves all others.
void Server::Impl::work_on() {
  is_working_ = false;
  turn_.begin();
  if (unfreed_.bytes() > 0) {
    turn_.spend(kEffortToFree);
    MemoryKeeper::give_back_pages(unfreed_.free_some());
  }
  if (namespaces_.has_work()) {
    turn_.spend(kEffortInARow);
    auto done = namespaces_.proceed(kEffortInARow, mono_now(), replies_);
    route();
    if (done) finish(*done);
  }
  if (status_.is_making()) {
    turn_.spend(kEffortInARow);
    if (auto made = status_.proceed(mono_now())) send_made(*made);
  }
  resume_some();
  give_turns();
  flush_all();
  keep_working();
}

// The large request of a client is done, so it may ask something else, or be gone.
void Server::Impl::finish(const Namespaces::Done& done) {
  Session* session = find(done.client);
  if (session == nullptr) return;
  session->is_busy = false;
  if (done.fault) return drop(*session, *done.fault);
  if (!session->fd) return forget(*session);
  watch_for(*session, {.readable = true, .writable = session->interest.writable});
  serve(*session);
  account_for(done.client);
}

// Hands the replies of one step to those they are for; as a rule to `asker` only.
void Server::Impl::route(Session* asker) {
  turn_.spend(replies_.size());
  Session* target = asker;
  for (Outgoing& outgoing : replies_) {
    if (target == nullptr || target->id != outgoing.to) target = find(outgoing.to);
    if (target == nullptr || !target->fd) continue;
    target->outbox.add(std::move(outgoing.reply));
    note_due(*target, target == asker ? Due::Asked : Due::Woken);
  }
  replies_.clear();
  std::optional<MonoTime> deadline = namespaces_.deadline();
  if (deadline && (!expiry_ || *deadline < *expiry_)) await_expiry(*deadline);
  keep_working();
}

// Notes that there is something to send to this client.
void Server::Impl::note_due(Session& session, Due due) {
  if (session.due >= due) return;
  session.due = due;
  due == Due::Asked ? asked_.push_back(session.id) : woken_.push_back(session.id);
}

// Those who have asked go first, and of those who were woken as many as the turn has time for.
void Server::Impl::flush_all() {
  for (std::size_t i = 0; i < asked_.size(); ++i) flush_due(asked_[i], Due::Asked);
  asked_.clear();
  // Closing a client may wake others, which join the list while it is worked off.
  for (int told = 0; !woken_.empty() && (told < kLeastWoken || !turn_.is_over()); ++told) {
    ClientId id = woken_.front();
    woken_.pop_front();
    flush_due(id, Due::Woken);
  }
  keep_working();
  memory_.give_back(namespaces_.usage().bytes + namespaces_.former_bytes() + unfreed_.bytes());
}

void Server::Impl::flush_due(ClientId id, Due due) {
  Session* session = find(id);
  if (session == nullptr || session->due != due) return;
  session->due = Due::No;
  flush(*session);
  limit_unread(id);
}

// Keeps count of what unread replies hold.  Another client may be the cause that they hold more: a
// value that it has deleted is held by them only.
void Server::Impl::limit_unread(ClientId id) {
  if (Session* session = find(id); session != nullptr && !session->is_own())
    sessions_.count_unread(*session);
  std::size_t most = config_.max_reply_bytes;
  if (sessions_.unread_bytes() <= most) return;
  // More than needed, because it takes long to find out who holds what.
  std::size_t goal = most - most / 8;
  for (auto [bytes, reader] : sessions_.readers()) {
    if (sessions_.unread_bytes() <= goal) return;
    if (Session* session = find(reader))
      drop(*session, "leaves " + std::to_string(bytes) +
                         " bytes of replies unread, and all together too much");
  }
}

// Sends what the client takes now.  Answers whether that was all; if not, write_to() will go on,
// or the session is gone.
bool Server::Impl::flush(Session& session) {
  if (!session.fd) return false;
  std::size_t most = turn_.is_over() ? kSentLate : kSentInARow;
  for (std::size_t sent = 0; !session.outbox.empty() || session.has_frames();) {
    if (session.is_sealed()) seal_some(session);
    std::string* frames = session.has_frames() ? &session.security->frames : nullptr;
    ssize_t count = 0;
    if (sent < most) {
      turn_.spend(effort::kSend);
      count = frames != nullptr
                  ? ::send(session.fd.get(), frames->data(), frames->size(), MSG_NOSIGNAL)
                  : send_from(session.outbox, session.fd.get(), most - sent);
    }
    if (count < 0 && errno == EINTR) continue;
    if (count == 0 || (count < 0 && errno == EAGAIN)) {
      bool is_to_read = session.closes_when_flushed || session.follows;
      if (is_to_read && session.stalled_bytes == 0) stall(session);
      watch_for(session, {.readable = session.interest.readable, .writable = true});
      return false;
    }
    if (count < 0) {
      forget(session);
      return false;
    }
    if (frames != nullptr) {
      frames->erase(0, static_cast<std::size_t>(count));
    } else {
      session.outbox.consume(static_cast<std::size_t>(count));
    }
    sent += static_cast<std::size_t>(count);
    turn_.spend(static_cast<std::size_t>(count) / effort::kBytes);
  }
  if (!session.closes_when_flushed) return true;
  forget(session);
  return false;
}

void Server::Impl::write_to(Session& session) {
  ClientId id = session.id;
  bool is_sent = flush(session);
  limit_unread(id);
  if (!is_sent || find(id) == nullptr) return;
  if (session.is_busy || session.is_deferred)
    return watch_for(session, {.readable = false, .writable = false});
  bool was_stalled = !session.interest.readable;
  session.stalled_bytes = 0;
  watch_for(session, {});
  if (was_stalled) serve(session);
  account_for(id);
}

// A page: one request, one response, and the connection is closed; or events, as long as it lasts.
void Server::Impl::serve_http(Session& session, std::string_view bytes) {
  if (session.follows) return drop(session, "it says more than what it wants to follow");
  switch (session.http->feed(bytes)) {
    case HttpReader::State::NeedMore:
      return;
    case HttpReader::State::Malformed:
      return drop(session, "it speaks neither the store's protocol nor HTTP");
    case HttpReader::State::Done:
      break;
  }
  std::optional<Reader> reader = reader_of(session);
  if (!reader) return respond(session, {page_for_strangers(config_.credential.empty())});
  if (session.http->target() == "/events" && session.http->method() == "GET")
    return follow(session, *reader);
  auto answer = status_.page_for(*session.http, *reader, mono_now(), session.id);
  if (answer) return respond(session, *answer);
  watch_for(session, {.readable = false, .writable = false});  // until send_made()
  keep_working();
}

void Server::Impl::respond(Session& session, const PageAnswer& answer) {
  bool has_body = session.http->method() != "HEAD";
  const auto& [page, shared] = answer;
  session.outbox.add(reply::Run{http_head(page, shared ? shared.size() : page.body.size())});
  if (has_body && shared) session.outbox.add_body(shared);
  if (has_body && !shared) {
    turn_.spend(page.body.size() / effort::kBytes);
    session.outbox.add(reply::Run{page.body});
  }
  session.http->clear();
  session.closes_when_flushed = true;
  watch_for(session, {.readable = false, .writable = true});
}

// A client that has not read the last event gets no further one until it has.
void Server::Impl::send_made(const Status::Made& made) {
  for (ClientId id : made.askers) {
    Session* session = find(id);
    if (session == nullptr || !session->fd) continue;
    if (!made.is_event) {
      respond(*session, made.answer);
    } else if (session->outbox.empty()) {
      session->outbox.add_body(made.answer.body);
      note_due(*session, Due::Woken);
    }
  }
}

// It is read from only to see that it has gone.
void Server::Impl::follow(Session& session, Reader reader) {
  if (!status_.follow(reader, session.id)) {
    std::string why =
        "nothing is to be followed here, or as many as may follow it do: ask for "
        "/status\n";
    return respond(session, {{.status = 503, .body = std::move(why)}});
  }
  session.follows = true;
  session.http->clear();
  session.outbox.add(reply::Run{http_head({.content_type = "text/event-stream"}, std::nullopt)});
  note_due(session, Due::Asked);
  if (!std::exchange(is_followed_, true)) look_for_followers();
}

void Server::Impl::look_for_followers() {
  is_followed_ = status_.has_followers();
  if (!is_followed_) return;
  status_.make_events(mono_now());
  keep_working();
  follow_timer_.expires_after(Followers::kPause);
  follow_timer_.async_wait(bound(&Impl::look_for_followers));
}

}  // namespace ddprun::store
