// SPDX-License-Identifier: BSD-3-Clause
//
// What clients push into the queues that this process reads: where it comes from, and who waits
// until what was pushed before has been read.
#include <utility>

#include "store/decide/stamp.h"
#include "store/server_impl.h"

namespace ddprun::store {

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

// Whether an item may be pushed now; nodes push few.  This process says by its reading which queue
// it works off.
bool Server::Impl::has_share(const Session& session, const Request& request) {
  if (const auto* take = std::get_if<request::QueueTake>(&request)) {
    bool is_read_here = session.is_own() && session.ns->is_reserved && !stamped_queues_.empty() &&
                        take->queue.starts_with(stamped_queues_);
    if (!is_read_here) return true;
    QueueShares& shares = inboxes_[session.ns].shares;
    if (take->queue != shares.queue()) shares.watch(take->queue);
    return true;
  }
  const auto* push = std::get_if<request::QueuePush>(&request);
  if (push == nullptr || !gets_stamp(session, push->queue)) return true;
  auto inbox = inboxes_.find(session.ns);
  return inbox == inboxes_.end() ||
         inbox->second.shares.take(push->queue, session.id, session.host);
}

// A client that has used its share up is not read from until the queue is empty.
void Server::Impl::park(Session& session, const Request& request) {
  session.decoder.hold();
  session.is_deferred = true;
  watch_for(session, {.readable = false, .writable = session.interest.writable});
  inboxes_[session.ns].parked.push_back({session.id, request});
  keep_working();
}

// Those go on that were parked, in the order in which they came.
void Server::Impl::unpark() {
  for (auto& [ns, inbox] : inboxes_) {
    if (inbox.parked.empty() || ns->keyspace.queue_length(inbox.shares.queue()) > 0) continue;
    inbox.shares.renew();
    for (Deferred& parked : std::exchange(inbox.parked, {})) deferred_.push_back(std::move(parked));
  }
}

}  // namespace ddprun::store
