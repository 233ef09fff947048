// SPDX-License-Identifier: BSD-3-Clause
//
// The half of the keyspace that knows who waits: waits, wake-ups, and items set aside.
#include <algorithm>
#include <iterator>
#include <utility>

#include "store/base/check.h"
#include "store/decide/keyspace.h"

namespace ddprun::store {

void Keyspace::disconnect(ClientId client, MonoTime now, Replies& replies) {
  Context turn{client, now, &replies};
  std::size_t before = replies.size();
  cancel_waits(client);
  if (!reservations_.empty()) release_all(turn, client, nullptr);
  auto found = clients_.find(client);
  if (found != clients_.end() && found->second.will) {
    LastWill will = *found->second.will;
    set_last_will(client, std::nullopt);
    push(turn, will.queue, will.item);
  }
  if (large_) hold_back(replies, before);
}

std::optional<MonoTime> Keyspace::deadline() const {
  std::optional<MonoTime> earliest;
  if (!reservations_.empty()) earliest = reservations_.front().since + kHold;
  if (!deadlines_.empty() && (!earliest || deadlines_.begin()->first < *earliest)) {
    earliest = deadlines_.begin()->first;
  }
  return earliest;
}

void Keyspace::expire(MonoTime now, Replies& replies) {
  std::size_t before = replies.size();
  while (!reservations_.empty() && reservations_.front().since + kHold <= now) {
    Reservation old = reservations_.front();
    drop(reservations_.begin());
    forget_if_idle(old.client);
    offer(Context{old.client, now, &replies}, *old.node);
    drop_if_unused(*old.node);
  }
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Wait& wait = *deadlines_.begin()->second;
    replies.push_back({wait.client, reply::Number{0}});
    end_wait(wait);
  }
  if (large_) hold_back(replies, before);
}

std::size_t Keyspace::wait_count(ClientId client) const {
  auto found = clients_.find(client);
  return found != clients_.end() ? found->second.waits.size() : 0;
}

std::vector<Keyspace::Pending> Keyspace::pending(std::size_t max_count,
                                                 std::size_t max_names) const {
  std::vector<Pending> found;
  for (const auto& [id, client] : clients_) {
    for (const Wait& wait : client.waits) {
      if (found.size() == max_count) return found;
      Pending& one = found.emplace_back(Pending{id, wait.since, {}, wait.keys_left});
      for (std::size_t i = 0; i < wait.link_count && one.missing.size() < max_names; ++i) {
        const Link& link = wait.links[i];
        if (link.place != Link::kOut) one.missing.emplace_back(link.node->name());
      }
    }
  }
  return found;
}

// Makes turn.client wait until each of the keys has been created once.
std::optional<std::string> Keyspace::start_wait(const Context& turn,
                                                const std::vector<Node*>& missing, WaitKind kind) {
  Client& client = clients_[turn.client];
  if (missing.size() > limits_.max_awaited_keys - client.awaited_keys) {
    std::size_t wanted = client.awaited_keys + missing.size();
    forget_if_idle(turn.client);
    return "waits for " + std::to_string(wanted) + " keys at once";
  }
  Wait& wait = add_wait(turn, kind, missing.size());
  for (Node* node : missing) add_link(wait, *node);
  return std::nullopt;
}

// Makes turn.client wait, for nothing yet.
Keyspace::Wait& Keyspace::add_wait(const Context& turn, WaitKind kind, std::size_t most_links) {
  Client& client = clients_[turn.client];
  Wait& wait = client.waits.emplace_back();
  wait.client = turn.client;
  wait.self = std::prev(client.waits.end());
  wait.since = turn.now;
  wait.keys_left = wait.link_count = 0;
  wait.links = std::make_unique<Link[]>(most_links);
  wait.kind = kind;
  wait.deadline = deadlines_.end();
  account(kWaitOverheadBytes);
  ++wait_count_;
  return wait;
}

// One more key for `wait` to wait for.
void Keyspace::add_link(Wait& wait, Node& node) {
  auto index = static_cast<std::uint32_t>(wait.link_count++);
  wait.links[index].node = &node;
  line_up(wait, index);
  account(kAwaitedNameBytes);
  ++wait.keys_left;
  ++clients_.find(wait.client)->second.awaited_keys;
}

// One of the keys of `wait` has come; its link is out of the key's list already.
void Keyspace::tick(const Context& turn, Wait& wait) {
  if (--wait.keys_left > 0) return;
  turn.replies->push_back({wait.client, reply::Byte{kStopWaiting}});
  end_wait(wait);
}

// A wait that still has many keys, or whose client has, is let go of by and by.
void Keyspace::end_wait(Wait& wait) {
  if (wait.deadline != deadlines_.end()) deadlines_.erase(wait.deadline);
  wait.is_over = true;
  ClientId id = wait.client;
  Client& client = clients_.find(id)->second;
  bool is_large = wait.keys_left > 0 && client.awaited_keys > limits_.names_at_once;
  client.awaited_keys -= wait.link_count;
  ended_.splice(ended_.end(), client.waits, wait.self);
  if (!is_large) {
    unlink(wait, wait.link_count);
    ended_.erase(wait.self);
  }
  discount(kWaitOverheadBytes);
  --wait_count_;
  forget_if_idle(id);
}

// Takes the last `count` links of `wait` out of their keys' lists.
void Keyspace::unlink(Wait& wait, std::size_t count) {
  for (; count > 0; --count) {
    Link& link = wait.links[--wait.link_count];
    discount(kAwaitedNameBytes);
    if (link.place == Link::kOut) continue;
    leave_line(link);
    drop_if_unused(*link.node);
  }
}

void Keyspace::clean_up(std::size_t effort) {
  while (effort > 0 && !ended_.empty()) {
    Wait& wait = ended_.front();
    std::size_t count = std::min(effort, wait.link_count);
    unlink(wait, count);
    effort -= count;
    if (wait.link_count == 0) ended_.pop_front();
  }
}

void Keyspace::cancel_waits(ClientId client) {
  for (auto found = clients_.find(client); found != clients_.end(); found = clients_.find(client)) {
    if (found->second.waits.empty()) return;
    end_wait(found->second.waits.front());
  }
}

// A wait that ends here has nothing left in the line.
void Keyspace::wake_all(const Context& turn, Node& node) {
  constexpr std::size_t kAhead = 8;
  std::unique_ptr<Waiters> line = std::move(node.entry.waiters);
  if (!line) return;
  const std::vector<Waiters::Item>& items = line->items;
  for (std::size_t i = line->first; i < items.size(); ++i) {
    if (i + kAhead < items.size() && items[i + kAhead].wait != nullptr) {
      __builtin_prefetch(&items[i + kAhead].wait->links[items[i + kAhead].link]);
    }
    if (items[i].wait == nullptr) continue;
    Wait& wait = *items[i].wait;
    if (wait.kind == WaitKind::Take && !wait.is_over) {
      line_up(wait, items[i].link);
      continue;
    }
    wait.links[items[i].link].place = Link::kOut;
    if (!wait.is_over) tick(turn, wait);
  }
}

// The link takes its place behind all others who wait for its name.
void Keyspace::line_up(Wait& wait, std::uint32_t link) {
  std::unique_ptr<Waiters>& line = wait.links[link].node->entry.waiters;
  if (!line) line = std::make_unique<Waiters>();
  close_up_if_sparse(*line);
  wait.links[link].place = static_cast<std::uint32_t>(line->items.size());
  line->items.push_back({&wait, link});
  ++line->count;
}

void Keyspace::leave_line(Link& link) {
  std::unique_ptr<Waiters>& line = link.node->entry.waiters;
  line->items[link.place].wait = nullptr;
  link.place = Link::kOut;
  --line->count == 0 ? line.reset() : close_up_if_sparse(*line);
}

// Where more have left than are there, those who are there move up.
void Keyspace::close_up_if_sparse(Waiters& waiters) {
  constexpr std::size_t kWorthwhile = 16;
  if (waiters.items.size() <= 2 * waiters.count + kWorthwhile) return;
  std::size_t next = 0;
  for (std::size_t i = waiters.first; i < waiters.items.size(); ++i) {
    Waiters::Item item = waiters.items[i];
    if (item.wait == nullptr) continue;
    item.wait->links[item.link].place = static_cast<std::uint32_t>(next);
    waiters.items[next++] = item;
  }
  waiters.items.resize(next);
  waiters.first = 0;
}

// Takes the first waiter, which there must be, out of the line.
Keyspace::Wait& Keyspace::take_first(Node& node) {
  Waiters& line = *node.entry.waiters;
  while (line.items[line.first].wait == nullptr) ++line.first;
  Waiters::Item item = line.items[line.first++];
  item.wait->links[item.link].place = Link::kOut;
  if (--line.count == 0) node.entry.waiters.reset();
  return *item.wait;
}

// Tells as many waiters of a queue as there are items that nobody was told of, first come first
// served.  A waiter that will not pop (it waits for other names too) uses no item up.
void Keyspace::offer(const Context& turn, Node& node) {
  Entry& entry = node.entry;
  while (entry.queue && entry.queue->items.size() > entry.queue->reserved_count && entry.waiters) {
    Wait& wait = take_first(node);
    if (wait.is_over) continue;
    if (wait.kind == WaitKind::Take) {
      pop(Context{wait.client, turn.now, turn.replies}, node);
      end_wait(wait);
      continue;
    }
    if (wait.kind == WaitKind::One) reserve(turn, wait.client, node);
    tick(turn, wait);
  }
}

void Keyspace::push(const Context& turn, std::string_view queue, Value item) {
  Node& node = find_or_create(queue);
  Entry& entry = node.entry;
  if (!entry.queue) {
    remember(node);
    entry.queue = std::make_unique<Queue>();
    account(kQueueOverheadBytes);
  }
  account(item.size() + kValueOverheadBytes);
  entry.queue->items.push_back(std::move(item));
  offer(turn, node);
  drop_if_unused(node);
}

// Answers turn.client with the oldest item, which must be there.
void Keyspace::pop(const Context& turn, Node& node) {
  std::unique_ptr<Queue>& queue = node.entry.queue;
  turn.reply(reply::Number{static_cast<std::int64_t>(queue->items.size())});
  discount(queue->items.front().size() + kValueOverheadBytes);
  turn.reply(reply::Bytes{std::move(queue->items.front())});
  queue->items.pop_front();
  if (!queue->items.empty()) return;
  remember(node);
  queue.reset();
  discount(kQueueOverheadBytes);
}

void Keyspace::set_last_will(ClientId id, std::optional<LastWill> will) {
  Client& client = clients_[id];
  if (client.will) discount(will_bytes(client.will->queue, client.will->item.size()));
  if (will) account(will_bytes(will->queue, will->item.size()));
  client.will = std::move(will);
  forget_if_idle(id);
}

void Keyspace::reserve(const Context& turn, ClientId client, Node& node) {
  ++node.entry.queue->reserved_count;
  auto place = reservations_.insert(reservations_.end(), {client, &node, turn.now});
  clients_[client].reservations.push_back(place);
}

// Turns an item set aside for `client` back into a common one, which it may pop in this turn.
bool Keyspace::take_reservation(ClientId client, const Node& node) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return false;
  for (Reservations::iterator reservation : found->second.reservations) {
    if (reservation->node != &node) continue;
    drop(reservation);
    forget_if_idle(client);
    return true;
  }
  return false;
}

// Forgets a reservation; the item is there for everybody again.
void Keyspace::drop(Reservations::iterator reservation) {
  Queue& queue = *reservation->node->entry.queue;
  check(queue.reserved_count > 0, "an item was set aside that is not there");
  --queue.reserved_count;
  auto& held = clients_.find(reservation->client)->second.reservations;
  held.erase(std::find(held.begin(), held.end(), reservation));
  reservations_.erase(reservation);
}

// Gives back what was set aside for `client`, except in the queue `except`.
void Keyspace::release_all(const Context& turn, ClientId client, const Node* except) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  std::vector<Node*> freed;
  for (std::size_t i = found->second.reservations.size(); i-- > 0;) {
    Reservations::iterator reservation = found->second.reservations[i];
    if (reservation->node == except) continue;
    if (std::find(freed.begin(), freed.end(), reservation->node) == freed.end()) {
      freed.push_back(reservation->node);
    }
    drop(reservation);
  }
  forget_if_idle(client);
  for (Node* node : freed) {
    offer(turn, *node);
    drop_if_unused(*node);
  }
}

void Keyspace::forget_if_idle(ClientId client) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  const Client& idle = found->second;
  if (idle.waits.empty() && idle.reservations.empty() && !idle.will) clients_.erase(found);
}

}  // namespace ddprun::store
