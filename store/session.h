// SPDX-License-Identifier: BSD-3-Clause
//
// The connections of a server.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/auth/handshake.h"
#include "store/base/fd.h"
#include "store/base/time.h"
#include "store/decide/crowd.h"
#include "store/decide/namespaces.h"
#include "store/decide/outbox.h"
#include "store/decide/wire.h"
#include "store/http.h"
#include "store/poller.h"

namespace ddprun::store {

// What a connection has on which its client shows that it knows the server's secret.
struct Security {
  std::optional<ServerHandshake> handshake;
  std::optional<SealedStream> stream;  // once it has shown it; all bytes are sealed from then on
  std::string frames;                  // to be sent before what is in the outbox
};

// What a connection is there for, as far as it has said.
enum class Standing {
  Guest,    // it has asked for nothing yet, or for a page
  Client,   // of the common namespace, or of one that anybody may make
  Entered,  // it has entered a reserved namespace, and asked for nothing there
  RunNode,  // of a run: it has asked for something there
};

// Which list of those to be sent to a connection is in.
enum class Due : std::uint8_t {
  No,
  Woken,  // others have caused the reply
  Asked,  // it is the reply to its own request, and goes first
};

// One connection: of a client, or of a program that fetches a page.
struct Session {
  Session(ClientId id_, Fd fd_, const WireLimits& limits, Namespace& ns_)
      : id(id_), fd(std::move(fd_)), decoder(limits), ns(&ns_) {}

  // Whether it comes from this process itself: Server::connect().
  bool is_own() const { return store::is_own(id); }

  bool has_frames() const { return security && !security->frames.empty(); }

  // Of a request that has not arrived in full: sealed, plain or for a page.
  std::size_t incomplete_bytes() const {
    std::size_t sealed = is_sealed() ? security->stream->held_bytes() : 0;
    return decoder.held_bytes() + sealed + (http ? http->held_bytes() : 0);
  }

  // Whether its client has shown that it knows the secret.
  bool is_sealed() const { return security && security->stream; }

  ClientId id;
  Fd fd;
  Poller::Interest interest;  // what the poller watches for
  Decoder decoder;
  Namespace* ns;  // where its requests are carried out
  Outbox outbox;
  std::unique_ptr<HttpReader> http;    // if it began with a capital letter
  std::unique_ptr<Security> security;  // if it has asked for that
  std::optional<std::uint32_t> nonce;  // of its first PING; torch's client sends its process id
  MonoTime ping_at{};                  // of that PING
  std::size_t held_bytes = 0;          // of an incomplete request, as last counted
  std::size_t unread_bytes = 0;        // that its replies hold, as last counted; no referred values
  std::size_t secret = 0;              // which of the server's its client knows
  Due due = Due::No;
  MonoTime stalled_since{};       // its unread replies have not become fewer since
  std::size_t stalled_bytes = 0;  // those replies, while it is not read from; otherwise 0
  bool closes_when_flushed = false;
  bool follows = false;  // Status::follow()
  Standing standing = Standing::Guest;
  std::string host;          // numeric; known once it has entered a reserved namespace
  bool is_admitted = false;  // to the common namespace, which may have a gate
  // Its large request is in progress.  It is not read from, and stays even if its connection is
  // lost: then it has no descriptor.
  bool is_busy = false;
  // What it has sent is looked at later, because it, or all together, asked for much in one turn.
  // It is not read from.
  bool is_deferred = false;
};

// All sessions, by the id of their client.
class Sessions {
 public:
  Session* find(ClientId id) const {
    auto found = sessions_.find(id);
    return found != sessions_.end() ? found->second.get() : nullptr;
  }

  void add(std::unique_ptr<Session> session) {
    if (session->is_own()) {
      ++own_count_;
    } else {
      ++count_of(*session);
      guests_.push_back(session->id);
    }
    sessions_.emplace(session->id, std::move(session));
  }

  void remove(Session& session) {
    leave(session);
    sessions_.erase(session.id);
  }

  void set_standing(Session& session, Standing standing) {
    if (session.is_own()) {
      session.standing = standing;
      return;
    }
    --count_of(session);
    if (is_of_run(session)) nodes_.remove(session.host, session.id);
    session.standing = standing;
    ++count_of(session);
    if (is_of_run(session)) nodes_.add(session.host, session.id);
  }

  // Of those that have entered a reserved namespace, who makes room for one more from `host`, where
  // `most` connections are all that there may be (store/decide/crowd.h).
  Session* gives_way(const std::string& host, std::size_t most) const {
    std::optional<ClientId> last = nodes_.gives_way(host, most);
    return last ? find(*last) : nullptr;
  }

  // The guest that has been here longest, if there is any.
  Session* oldest_guest() {
    for (; !guests_.empty(); guests_.pop_front()) {
      Session* session = find(guests_.front());
      if (session != nullptr && session->standing == Standing::Guest) return session;
    }
    return nullptr;
  }

  // Calls `prepare(Session&)` for each session that `is_chosen`, and removes it.
  template <class IsChosen, class Prepare>
  void remove_if(IsChosen is_chosen, Prepare prepare) {
    std::erase_if(sessions_, [&](const auto& entry) {
      Session& session = *entry.second;
      if (!is_chosen(session)) return false;
      prepare(session);
      leave(session);
      return true;
    });
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [id, session] : sessions_) visit(*session);
  }

  void clear() { sessions_.clear(); }

  // Without the connections of this process itself.
  std::size_t client_count() const { return sessions_.size() - own_count_; }
  std::size_t own_count() const { return own_count_; }
  // Without the connections of this process itself, too.
  std::size_t count(Standing standing) const { return counts_[static_cast<std::size_t>(standing)]; }

  // Counts anew what this session holds of an incomplete request.
  void count_held(Session& session) { set_held(session, session.incomplete_bytes()); }
  // Counts anew what its replies hold.
  void count_unread(Session& session) {
    std::size_t unread = session.outbox.held_bytes();
    unread_bytes_ += unread - std::exchange(session.unread_bytes, unread);
  }
  void forget_held(Session& session) {
    set_held(session, 0);
    unread_bytes_ -= std::exchange(session.unread_bytes, 0);
  }
  std::size_t held_bytes() const { return held_bytes_; }
  // What unread replies hold, and the values that only they hold.
  std::size_t unread_bytes() const { return unread_bytes_ + SentValue::all_unstored_bytes(); }

  // The session that holds most; there must be one.
  Session& largest_holder() const { return *find(holders_.rbegin()->second); }

  // Those with unread replies that hold anything, and how much: those that hold most first.
  std::vector<std::pair<std::size_t, ClientId>> readers() const {
    std::vector<std::pair<std::size_t, ClientId>> readers;
    for_each([&](const Session& session) {
      std::size_t bytes = session.outbox.held_bytes() + session.outbox.unstored_bytes();
      if (bytes > 0 && !session.is_own()) readers.emplace_back(bytes, session.id);
    });
    std::sort(readers.begin(), readers.end(), std::greater<>());
    return readers;
  }

 private:
  void set_held(Session& session, std::size_t bytes) {
    if (bytes == session.held_bytes) return;
    if (session.held_bytes > 0) holders_.erase({session.held_bytes, session.id});
    if (bytes > 0) holders_.emplace(bytes, session.id);
    held_bytes_ += bytes - std::exchange(session.held_bytes, bytes);
  }

  static bool is_of_run(const Session& session) {
    return session.standing == Standing::Entered || session.standing == Standing::RunNode;
  }

  std::size_t& count_of(const Session& session) {
    return counts_[static_cast<std::size_t>(session.standing)];
  }

  void leave(Session& session) {
    forget_held(session);
    if (session.is_own()) {
      --own_count_;
    } else {
      --count_of(session);
      if (is_of_run(session)) nodes_.remove(session.host, session.id);
    }
    forget_former_guests();
  }

  // The list does not grow by those that have been guests.
  void forget_former_guests() {
    constexpr std::size_t kFew = 64;
    if (guests_.size() <= kFew + 3 * count(Standing::Guest)) return;
    std::erase_if(guests_, [this](ClientId id) {
      Session* session = find(id);
      return session == nullptr || session->standing != Standing::Guest;
    });
  }

  std::unordered_map<ClientId, std::unique_ptr<Session>> sessions_;
  std::array<std::size_t, 4> counts_{};
  Crowd nodes_;                  // those that have entered a reserved namespace
  std::deque<ClientId> guests_;  // in the order in which they came; some are no guests any more
  std::size_t own_count_ = 0;
  std::set<std::pair<std::size_t, ClientId>> holders_;  // of incomplete requests, by their bytes
  std::size_t held_bytes_ = 0;
  std::size_t unread_bytes_ = 0;
};

}  // namespace ddprun::store
