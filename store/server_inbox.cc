// SPDX-License-Identifier: BSD-3-Clause
//
// The queue that this process reads, when clients fill it faster than it is read: each client's
// next push waits for its turn, so that a flood delays only the machine that sends it.
#include <utility>

#include "store/clock.h"
#include "store/decide/effort.h"
#include "store/decide/stamp.h"
#include "store/server_impl.h"

namespace ddprun::store {
namespace {

// So many items lie in the queue before the next one waits: what it takes to read them is the delay
// that others see.
constexpr std::size_t kMostItems = 64;

// What is pushed for clients that have gone is held here; beyond so many bytes it is pushed at
// once.
constexpr std::size_t kMostHeldBytes = 1 << 20;

}  // namespace

bool Server::Impl::gets_stamp(const Session& session, std::string_view queue) const {
  bool stamps = session.ns->is_reserved && !stamped_queues_.empty() && !session.is_own();
  return stamps && queue.starts_with(stamped_queues_);
}

// It refers to what the next one overwrites.
std::optional<Request> Server::Impl::with_stamp(const Session& session, const Request& request) {
  if (const auto* push = std::get_if<request::QueuePush>(&request)) {
    if (!gets_stamp(session, push->queue)) return std::nullopt;
    stamped_ = stamped(push->value, session.host);
    return request::QueuePush{push->queue, stamped_};
  }
  if (const auto* will = std::get_if<request::LastWill>(&request)) {
    if (!gets_stamp(session, will->queue)) return std::nullopt;
    stamped_ = stamped(will->item, session.host);
    return request::LastWill{will->queue, stamped_};
  }
  return std::nullopt;
}

// This process says by its reading which queue it reads.
void Server::Impl::note_inbox(const Session& session, const Request& request) {
  if (!session.is_own() || !session.ns->is_reserved || stamped_queues_.empty()) return;
  const auto* take = std::get_if<request::QueueTake>(&request);
  if (take == nullptr || !take->queue.starts_with(stamped_queues_)) return;
  inbox_.ns = session.ns;
  inbox_.queue = take->queue;
}

bool Server::Impl::inbox_is_full() const {
  return inbox_.ns != nullptr && inbox_.ns->keyspace.queue_length(inbox_.queue) >= kMostItems;
}

// Whether who pushes, and is not this process, has to wait.
bool Server::Impl::inbox_has_crowd() const {
  return !inbox_.turns.empty() || inbox_is_full();
}

bool Server::Impl::must_wait_for_turn(const Session& session, const Request& request) const {
  const auto* push = std::get_if<request::QueuePush>(&request);
  if (push == nullptr || session.ns != inbox_.ns || push->queue != inbox_.queue) return false;
  return session.is_own() ? !inbox_.turns.empty() : inbox_has_crowd();
}

// What this process pushes itself comes behind all that had come before, and waits for no turn.
// Another client is not read from until its turn has come.
void Server::Impl::await_turn(Session& session, const Request& request) {
  if (session.is_own()) {
    const auto& push = std::get<request::QueuePush>(request);
    inbox_.own.push_back({inbox_.turns.last(), session.id, Value(push.value)});
    return;
  }
  Request held = session.decoder.hold();
  session.is_deferred = true;
  stop_reading(session);
  inbox_.waiting.emplace(inbox_.turns.add(session.host),
                         Inbox::Waiting{.client = session.id, .request = held, .will = {}});
  keep_working();
}

// The last will of a client that goes waits as what it has pushed does.
void Server::Impl::let_will_wait(const Session& session) {
  bool waits = session.ns == inbox_.ns && !session.is_own() && inbox_has_crowd() &&
               inbox_.held_bytes < kMostHeldBytes;
  if (!waits) return;
  Value will = inbox_.ns->keyspace.take_last_will(session.id, inbox_.queue);
  if (!will) return;
  inbox_.held_bytes += will.size();
  inbox_.waiting.emplace(inbox_.turns.add(session.host),
                         Inbox::Waiting{.client = session.id, .request = {}, .will = will});
  keep_working();
}

bool Server::Impl::own_is_next() const {
  return !inbox_.own.empty() && !inbox_.turns.has_up_to(inbox_.own.front().after);
}

bool Server::Impl::has_turns() const {
  return own_is_next() || (!inbox_.turns.empty() && !inbox_is_full());
}

void Server::Impl::give_turns() {
  while (has_turns() && !turn_.is_half_over()) {
    if (own_is_next()) {
      Inbox::Own own = std::move(inbox_.own.front());
      inbox_.own.pop_front();
      push_to_inbox(own.client, std::move(own.item));
      continue;
    }
    auto waiting = inbox_.waiting.extract(inbox_.turns.next().value());
    Inbox::Waiting next = std::move(waiting.mapped());
    if (next.will) {
      inbox_.held_bytes -= next.will.size();
      push_to_inbox(next.client, std::move(next.will));
    } else if (Session* session = find(next.client)) {
      resume(*session, next.request, true);
    }
  }
}

// For a client that may have gone.
void Server::Impl::push_to_inbox(ClientId client, Value item) {
  turn_.spend(1 + item.size() / effort::kBytes);
  inbox_.ns->keyspace.push(client, inbox_.queue, std::move(item), mono_now(), replies_);
  route();
}

}  // namespace ddprun::store
