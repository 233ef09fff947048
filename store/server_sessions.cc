// SPDX-License-Identifier: BSD-3-Clause
//
// What happens on a connection of the server: bytes in, requests carried out, replies out.
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <utility>

#include "store/server_impl.h"

namespace ddprun::store {
namespace asio = boost::asio;

namespace {

// One write gathers up to this many pieces.
constexpr std::size_t kGatheredPieces = 128;

// The page /status names up to so many waiters, and so many names of each.
constexpr std::size_t kShownWaiters = 1000;
constexpr std::size_t kShownNames = 8;

bool begins_like_http(std::string_view bytes) {
  return !bytes.empty() && bytes[0] >= 'A' && bytes[0] <= 'Z';
}

}  // namespace

void Server::Impl::await_bytes(Session& session) {
  if (std::exchange(session.awaits_bytes, true)) return;
  session.descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                bound(&Impl::read_from, session.id));
}

void Server::Impl::read_from(ClientId id) {
  Session* session = find(id);
  if (session == nullptr) return;
  session->awaits_bytes = false;
  ssize_t count = ::recv(session->descriptor.native_handle(), input_.data(), input_.size(), 0);
  if (count > 0) {
    take(*session, {input_.data(), static_cast<std::size_t>(count)});
    account_for(id);
  } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    await_bytes(*session);
  } else {
    forget(*session);
  }
  flush_all();
}

void Server::Impl::take(Session& session, std::string_view bytes) {
  bool is_new = !session.decoder.is_validated() && session.decoder.held_bytes() == 0;
  if (is_new && !session.http && config_.serves_http && begins_like_http(bytes)) {
    session.http = std::make_unique<HttpReader>();
  }
  if (session.http) return serve_http(session, bytes);
  session.decoder.feed(bytes);
  serve(session);
}

// Carries out what has arrived from a client, as long as it reads its replies.
void Server::Impl::serve(Session& session) {
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
    const Request& request = std::get<Request>(next);
    ++figures_.requests[static_cast<std::size_t>(op_of(request))];
    if (const auto* ping = std::get_if<request::Ping>(&request); ping && !session.nonce) {
      session.nonce = ping->nonce;
    }
    auto fault = spaces_.execute(id, session.space, request, now, replies_);
    route();
    if (fault) return drop(session, *fault);
  }
}

// Hands the replies of one step to those they are for.
void Server::Impl::route() {
  Session* target = nullptr;
  for (Outgoing& outgoing : replies_) {
    if (target == nullptr || target->id != outgoing.to) target = find(outgoing.to);
    if (target == nullptr) continue;
    target->outbox.add(outgoing.reply);
    if (!std::exchange(target->is_dirty, true)) dirty_.push_back(target->id);
  }
  replies_.clear();
  std::optional<MonoTime> deadline = spaces_.deadline();
  if (deadline && (!expiry_ || *deadline < *expiry_)) await_expiry(*deadline);
}

void Server::Impl::flush_all() {
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
bool Server::Impl::flush(Session& session) {
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
  if (!session.closes_when_flushed) return true;
  forget(session);
  return false;
}

void Server::Impl::await_room(Session& session) {
  if (std::exchange(session.awaits_room, true)) return;
  session.descriptor.async_wait(asio::posix::stream_descriptor::wait_write,
                                bound(&Impl::write_to, session.id));
}

void Server::Impl::write_to(ClientId id) {
  Session* session = find(id);
  if (session == nullptr) return;
  session->awaits_room = false;
  if (flush(*session) && !session->awaits_bytes) serve(*session);
  account_for(id);
  flush_all();
}

// Somebody looks at a page: one request, one response, and that is all.
void Server::Impl::serve_http(Session& session, std::string_view bytes) {
  switch (session.http->feed(bytes)) {
    case HttpReader::State::NeedMore:
      return await_bytes(session);
    case HttpReader::State::Malformed:
      return drop(session, "it speaks neither the store's protocol nor HTTP");
    case HttpReader::State::Done:
      break;
  }
  Page page = page_for(*session.http);
  session.outbox.add(http_response(page, session.http->method() != "HEAD"));
  session.closes_when_flushed = true;
  flush(session);
}

Page Server::Impl::page_for(const HttpReader& request) {
  if (request.method() != "GET" && request.method() != "HEAD") {
    return {.status = 405, .body = "only GET and HEAD\n"};
  }
  figures_.connections = sessions_.size();
  figures_.keys = spaces_.usage().keys;
  figures_.bytes = spaces_.usage().bytes;
  figures_.spaces = spaces_.named_count();
  figures_.held_bytes = held_bytes_;
  figures_.waits = spaces_.wait_count();
  std::string target = request.target();
  if (target == "/healthz") return {.body = "ok\n"};
  if (target == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4", .body = metrics_page(figures_)};
  }
  if (target == "/status") {
    std::string joined(spaces_.common().keyspace.peek("init/").view());
    return {.content_type = "application/json",
            .body = status_page(figures_, joined.empty() ? "0" : joined, waiters())};
  }
  return {.status = 404, .body = "there are /healthz, /metrics and /status\n"};
}

std::vector<Waiter> Server::Impl::waiters() {
  MonoTime now = std::chrono::steady_clock::now();
  std::vector<Waiter> waiters;
  spaces_.for_each([&](const Space& space) {
    std::size_t room = kShownWaiters - waiters.size();
    for (Keyspace::Pending& pending : space.keyspace.pending(room, kShownNames)) {
      Session* session = find(pending.client);
      if (session == nullptr) continue;
      waiters.push_back({.peer = peer_of(session->descriptor.native_handle()),
                         .pid = session->nonce,
                         .space = space.name,
                         .missing = std::move(pending.missing),
                         .missing_count = pending.missing_count,
                         .since = now - pending.since});
    }
  });
  return waiters;
}

}  // namespace ddprun::store
