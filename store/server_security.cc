// SPDX-License-Identifier: BSD-3-Clause
//
// Who is at the other end of a connection: clients that show that they know the server's secret,
// what is sealed for them, and who may read the pages.
#include <unistd.h>

#include <array>
#include <variant>

#include "store/clock.h"
#include "store/server_impl.h"

namespace ddprun::store {
namespace {

// So much is sealed before it is sent.
constexpr std::size_t kSealedAtOnceBytes = 4 * SealedStream::kFrameBytes;

void append_framed(std::string_view bytes, std::string& out) {
  encode_length(bytes.size(), out);
  out.append(bytes);
}

// Of the namespace `name` of those who know this secret.
std::string name_for(std::size_t secret, std::string_view name) {
  std::string own_name(name);
  if (secret > 0) own_name.append("#").append(std::to_string(secret + 1));
  return own_name;
}

// Of the field Host: "127.0.0.1:29400", "localhost", or nothing, which no browser says.
bool is_by_address(const std::string& host) {
  if (host.empty()) return true;
  Result<Endpoint> said = parse_endpoint(host, 80);
  return said && (said->host == "localhost" || is_numeric_host(said->host));
}

}  // namespace

// Whether nothing is left to be done for `request`.  The session may be gone then, or about to be
// closed.
bool Server::Impl::serve_connection(Session& session, const Request& request) {
  if (const auto* enter = std::get_if<request::EnterNamespace>(&request)) {
    if (!namespaces_.is_reserved(enter->name)) return false;
    enter_reserved(session, enter->name);
  } else if (const auto* authenticate = std::get_if<request::Authenticate>(&request)) {
    challenge(session, *authenticate);
  } else if (const auto* proof = std::get_if<request::Prove>(&request)) {
    prove(session, *proof);
  }
  return true;
}

void Server::Impl::reserve_namespace(std::string name) {
  namespaces_.reserve(name);
  for (std::size_t secret = 1; secret < config_.secrets.size(); ++secret)
    namespaces_.reserve(name_for(secret, name));
  reserved_names_.insert(std::move(name));
}

// Names of namespaces as they are inside the store: no client may ask for one of them.
void Server::Impl::enter_reserved(Session& session, std::string_view name) {
  bool is_known = config_.secrets.empty() || session.is_own() || session.is_sealed();
  if (!is_known)
    refuse(
        {.peer = peer_host(session.fd.get()), .why = "it has not shown that it knows the secret"});
  if (!is_known || !reserved_names_.contains(std::string(name))) {
    std::string reply;
    encode(reply::Byte{kUnknownPeer}, reply);
    return answer(session, reply);
  }
  std::string own_name = name_for(session.secret, name);
  Request enter = request::EnterNamespace{own_name};
  auto fault = namespaces_.execute(session.id, session.ns, enter, mono_now(), replies_);
  route(&session);
  if (fault) return drop(session, *fault);
  // It has said what it is there for: it must not have to make room for those who have not.
  bool has_entered = session.ns->is_reserved;
  if (!has_entered) return;
  if (session.host.empty()) session.host = peer_host(session.fd.get());
  if (!is_settled(session)) sessions_.set_standing(session, Standing::Entered);
}

// A server without a secret answers with nothing.
void Server::Impl::challenge(Session& session, const request::Authenticate& request) {
  std::string reply;
  if (config_.secrets.empty()) {
    refuse({.peer = peer_host(session.fd.get()),
            .why = "it wants a secret, or MUNGE, and this rendezvous has none"});
    append_framed("", reply);
    return answer(session, reply);
  }
  if (session.security) return drop(session, "AUTHENTICATE came twice");
  // An attacker between client and server could have put these requests there, and the answers to
  // them would be sealed as the client's.
  bool is_new = session.standing == Standing::Guest && session.ns == &namespaces_.common();
  if (!is_new) return drop(session, "AUTHENTICATE after other requests");
  session.security = std::make_unique<Security>();
  session.security->handshake.emplace(config_.secrets);
  auto challenge = session.security->handshake->challenge(request.challenge);
  if (!challenge) return drop(session, "AUTHENTICATE without a challenge");
  append_framed(*challenge + config_.credential, reply);
  answer(session, reply);
}

void Server::Impl::prove(Session& session, const request::Prove& request) {
  bool is_asked = session.security && session.security->handshake;
  if (!is_asked) return drop(session, "PROVE without AUTHENTICATE");
  Security& security = *session.security;
  auto proved = security.handshake->check(request.proof);
  security.handshake.reset();
  if (!proved) {
    refuse({.peer = peer_host(session.fd.get()), .why = "it does not know the secret"});
    std::string reply;
    append_framed("", reply);
    answer(session, reply);
    session.closes_when_flushed = true;
    return watch_for(session, {.readable = false, .writable = true});
  }
  while (!session.outbox.empty()) {
    std::string_view piece = session.outbox.front();
    security.frames.append(piece);
    session.outbox.consume(piece.size());
  }
  append_framed(proved->answer, security.frames);
  security.stream = std::move(proved->stream);
  session.secret = proved->secret;
  answer(session, "");
  // What has come behind the proof.
  std::string frames = session.decoder.take_rest();
  opened_.clear();
  if (!security.stream->open(frames, opened_))
    return drop(session, "sent what its own end has not sealed");
  session.decoder.feed(opened_);
}

// To be sent at the end of the turn.
void Server::Impl::answer(Session& session, std::string_view bytes) {
  if (!bytes.empty()) session.outbox.add(bytes);
  note_due(session, Due::Asked);
}

// As long as sealed bytes wait to be sent, no more are sealed.
void Server::Impl::seal_some(Session& session) {
  Security& security = *session.security;
  if (!security.frames.empty()) return;
  for (std::size_t sealed = 0; sealed < kSealedAtOnceBytes && !session.outbox.empty();) {
    std::string_view piece = session.outbox.front().substr(0, kSealedAtOnceBytes - sealed);
    security.stream->seal(piece, security.frames);
    session.outbox.consume(piece.size());
    sealed += piece.size();
  }
}

std::string Server::Impl::value_of(std::string_view reserved_name, std::size_t secret,
                                   std::string_view key) const {
  const Namespace* ns = namespaces_.find(name_for(secret, reserved_name));
  if (ns == nullptr) return "";
  std::string name("/");  // as clients of c10d name a key
  name.append(key);
  return std::string(ns->keyspace.peek(name).view());
}

// A process here of the same user, or of root.
bool Server::Impl::is_of_this_user(Session& session) {
  Gate gate{.user = ::geteuid()};
  if (!has_asked_for_owners_) find_owners(gate);
  has_asked_for_owners_ = true;
  int fd = session.fd.get();
  return owners_.can_answer() && !why_refused_at(gate, fd, peer_host(fd));
}

// Who reads the pages; nullopt: it may not.  With secrets a stranger reads /healthz and the empty
// page only.  A page of another site that a browser here has open can have a name of its own lead
// to this address; so a process counts as the user's only if it says an address or "localhost".
std::optional<Reader> Server::Impl::reader_of(Session& session) {
  bool has_secret = !config_.secrets.empty();
  std::string target = session.http->target();
  if (target == "/healthz" || target == "/") return Reader::Stranger;  // "/" asks for the rest
  if (has_secret && config_.secrets.front().is_page_token(session.http->bearer()))
    return Reader::Trusted;
  if (is_of_this_user(session) && is_by_address(session.http->host())) return Reader::Trusted;
  return has_secret ? std::nullopt : std::optional(Reader::Stranger);
}

}  // namespace ddprun::store
