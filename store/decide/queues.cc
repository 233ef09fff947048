// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/queues.h"

#include <algorithm>
#include <utility>

#include "store/base/check.h"

namespace ddprun::store {

void Queues::push(const Context& context, std::string_view queue, Value item) {
  Node& node = entries_.find_or_create(queue);
  entries_.push(node, std::move(item));
  offer(context, node);
  entries_.drop_if_unused(node);
}

void Queues::pop(const Context& context, Node& node) {
  context.reply(reply::Number{static_cast<std::int64_t>(node.entry.queue->items.size())});
  context.reply(reply::Bytes{entries_.pop(node)});
}

// Gives the free items to the waiters, first come first served.  A waiter that will not pop,
// because it waits for other names too, uses no item up.
void Queues::offer(const Context& context, Node& node) {
  std::size_t offers_left = limits_.wakes_at_once;
  for (; node.entry.has_free_item() && node.entry.waiters; --offers_left) {
    if (offers_left == 0) {
      bool is_noted = !unoffered_.empty() && unoffered_.back() == node.name();
      if (!is_noted) unoffered_.emplace_back(node.name());
      return;
    }
    Wait& wait = waits_.take_first(node);
    if (wait.is_over) continue;
    if (wait.kind == WaitKind::Take) {
      pop(Context{wait.client, context.now, context.replies}, node);
      waits_.end(wait);
      continue;
    }
    if (wait.kind == WaitKind::One) reserve(context, wait.client, node);
    waits_.name_exists(context, wait);
  }
}

void Queues::offer_some(MonoTime now, Replies& replies) {
  std::string name = std::move(unoffered_.front());
  unoffered_.pop_front();
  Node* node = entries_.find(name);
  if (node == nullptr) return;
  offer(Context{0, now, &replies}, *node);
  entries_.drop_if_unused(*node);
}

void Queues::reserve(const Context& context, ClientId client, Node& node) {
  ++node.entry.queue->reserved_count;
  auto place = reservations_.insert(reservations_.end(), {client, &node, context.now});
  clients_[client].push_back(place);
}

void Queues::take_reservation(ClientId client, const Node& node) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  for (Reservations::iterator reservation : found->second) {
    if (reservation->node == &node) return drop(reservation);
  }
}

// The item is free again; the queue is not offered to its waiters yet.
void Queues::drop(Reservations::iterator reservation) {
  Queue& queue = *reservation->node->entry.queue;
  check(queue.reserved_count > 0, "an item was set aside that is not there");
  --queue.reserved_count;
  auto client = clients_.find(reservation->client);
  auto& held = client->second;
  held.erase(std::find(held.begin(), held.end(), reservation));
  if (held.empty()) clients_.erase(client);
  reservations_.erase(reservation);
}

void Queues::release(const Context& context, ClientId client, const Node* except) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  std::vector<Node*> freed;
  std::vector<Reservations::iterator> held = found->second;
  for (std::size_t i = held.size(); i-- > 0;) {
    Node* node = held[i]->node;
    if (node == except) continue;
    if (std::find(freed.begin(), freed.end(), node) == freed.end()) freed.push_back(node);
    drop(held[i]);
  }
  for (Node* node : freed) {
    offer(context, *node);
    entries_.drop_if_unused(*node);
  }
}

std::optional<MonoTime> Queues::deadline() const {
  if (reservations_.empty()) return std::nullopt;
  return reservations_.front().since + kHold;
}

std::size_t Queues::expire(MonoTime now, Replies& replies, std::size_t most) {
  std::size_t count = 0;
  for (; count < most && !reservations_.empty(); ++count) {
    if (reservations_.front().since + kHold > now) break;
    Reservation old = reservations_.front();
    drop(reservations_.begin());
    offer(Context{old.client, now, &replies}, *old.node);
    entries_.drop_if_unused(*old.node);
  }
  return count;
}

void Queues::clear() {
  unoffered_.clear();
  reservations_.clear();
  clients_ = decltype(clients_)();
}

bool Queues::free_some(std::size_t& effort) {
  for (; effort > 0 && !reservations_.empty(); --effort) reservations_.pop_front();
  for (; effort > 0 && !clients_.empty(); --effort) clients_.erase(clients_.begin());
  return effort > 0;
}

}  // namespace ddprun::store
