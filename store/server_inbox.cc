// SPDX-License-Identifier: BSD-3-Clause
//
// What clients push into the queues that this process reads: where it comes from.
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

}  // namespace ddprun::store
