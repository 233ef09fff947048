// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/waits.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "store/decide/effort.h"

namespace ddprun::store {
namespace {

// A client that waits for more names than this, and waits no more, is not taken out of their
// waiters at once: thousands of such clients may leave at the same time.
constexpr std::size_t kLinksAtOnce = 64;

}  // namespace

std::optional<std::string> Waits::start(const Context& context, const std::vector<Node*>& missing,
                                        WaitKind kind) {
  if (auto fault = too_many(context.client)) return fault;
  std::size_t awaited = awaited_names(context.client);
  if (missing.size() > limits_.max_awaited_keys - awaited) {
    return "waits for " + std::to_string(awaited + missing.size()) + " keys at once";
  }
  Wait& wait = add(context, kind, missing.size());
  for (Node* node : missing) add_link(wait, *node);
  return std::nullopt;
}

std::optional<std::string> Waits::too_many(ClientId client) const {
  if (is_own(client) || count(client) < limits_.max_waits) return std::nullopt;
  return "waits " + std::to_string(limits_.max_waits + 1) + " times at once";
}

void Waits::set_deadline(ClientId client, MonoTime deadline) {
  Wait& wait = clients_.find(client)->second.waits.back();
  wait.deadline = deadlines_.emplace(deadline, &wait);
}

Wait& Waits::add(const Context& context, WaitKind kind, std::size_t most_links) {
  Client& client = clients_[context.client];
  Wait& wait = client.waits.emplace_back();
  wait.client = context.client;
  wait.self = std::prev(client.waits.end());
  wait.since = context.now;
  wait.names_left = wait.link_count = 0;
  wait.links = std::make_unique<WaitLink[]>(most_links);
  wait.kind = kind;
  wait.deadline = deadlines_.end();
  budget_.add(cost::kWait);
  ++count_;
  return wait;
}

// A name that is given twice has one link, unless others came between.
void Waits::add_link(Wait& wait, Node& node) {
  const Waiters* waiters = node.entry.waiters.get();
  if (waiters != nullptr && waiters->items.back().wait == &wait) return;
  auto index = static_cast<std::uint32_t>(wait.link_count++);
  wait.links[index].node = &node;
  enqueue(wait, index);
  budget_.add(cost::kAwaitedName);
  ++wait.names_left;
  ++clients_.find(wait.client)->second.awaited_names;
}

std::size_t Waits::awaited_names(ClientId client) const {
  auto found = clients_.find(client);
  return found != clients_.end() ? found->second.awaited_names : 0;
}

void Waits::name_exists(const Context& context, Wait& wait) {
  if (--wait.names_left > 0) return;
  context.replies->push_back({wait.client, reply::Byte{kStopWaiting}});
  end(wait);
}

// A wait for names that all exist has no link any more.  One that still has many, or whose client
// has, is taken apart by clean_up().
void Waits::end(Wait& wait) {
  if (wait.deadline != deadlines_.end()) deadlines_.erase(wait.deadline);
  wait.is_over = true;
  auto found = clients_.find(wait.client);
  Client& client = found->second;
  bool is_large =
      wait.names_left > 0 && client.awaited_names > std::min(kLinksAtOnce, limits_.names_at_once);
  client.awaited_names -= wait.link_count;
  ended_.splice(ended_.end(), client.waits, wait.self);
  if (wait.names_left == 0) {
    budget_.remove(wait.link_count * cost::kAwaitedName);
    ended_.erase(wait.self);
  } else if (!is_large) {
    std::size_t effort = std::numeric_limits<std::size_t>::max();
    unlink(wait, effort);
    ended_.erase(wait.self);
  }
  budget_.remove(cost::kWait);
  --count_;
  if (client.waits.empty()) clients_.erase(found);
}

// Takes links of `wait`, the last ones first, out of their names' waiters as far as the effort
// goes, which it diminishes.
void Waits::unlink(Wait& wait, std::size_t& effort) {
  while (wait.link_count > 0 && effort > 0) {
    WaitLink& link = wait.links[--wait.link_count];
    budget_.remove(cost::kAwaitedName);
    std::size_t spent = 1;
    if (link.place != WaitLink::kOut) {
      spent += leave(link);
      entries_.drop_if_unused(*link.node);
    }
    effort -= std::min(effort, spent);
  }
}

void Waits::clean_up(std::size_t effort, MonoTime now, Replies& replies) {
  if (!waking_.empty()) {
    std::size_t share = ended_.empty() ? effort : (effort + 1) / 2;
    wake_some(share, Context{0, now, &replies});
    effort -= share;
  }
  while (effort > 0 && !ended_.empty()) {
    Wait& wait = ended_.front();
    unlink(wait, effort);
    if (wait.link_count == 0) ended_.pop_front();
  }
}

void Waits::cancel_all(ClientId client) {
  for (auto found = clients_.find(client); found != clients_.end(); found = clients_.find(client)) {
    end(found->second.waits.front());
  }
}

void Waits::wake_all(const Context& context, Node& node) {
  const Waiters* waiters = node.entry.waiters.get();
  if (waiters == nullptr) return;
  if (waiters->waking != nullptr || waiters->count > wakes_left_) return wake_later(context, node);
  wakes_left_ -= waiters->count;
  wake_now(context, node);
}

// The node's waiters are taken as a whole, so a wait that ends here has no link left in them.
void Waits::wake_now(const Context& context, Node& node) {
  constexpr std::size_t kAhead = 8;
  std::unique_ptr<Waiters> waiters = std::move(node.entry.waiters);
  const std::vector<Waiters::Item>& items = waiters->items;
  for (std::size_t i = waiters->first; i < items.size(); ++i) {
    if (i + kAhead < items.size() && items[i + kAhead].wait != nullptr) {
      __builtin_prefetch(&items[i + kAhead].wait->links[items[i + kAhead].link]);
    }
    if (items[i].wait == nullptr) continue;
    Wait& wait = *items[i].wait;
    if (wait.kind == WaitKind::Take && !wait.is_over) {
      enqueue(wait, items[i].link);
      continue;
    }
    wait.links[items[i].link].place = WaitLink::kOut;
    if (!wait.is_over) name_exists(context, wait);
  }
}

// Waiters that come from now on are not woken: by then the key may be gone.
void Waits::wake_later(const Context& context, Node& node) {
  Waiters& waiters = *node.entry.waiters;
  if (waiters.waking == nullptr) {
    waiters.waking = &waking_.emplace_back(Waking{&node, {}});
    waiters.waking->self = std::prev(waking_.end());
    waiters.wake_next = waiters.first;
  }
  waiters.wake_end = waiters.items.size();
  wake_own(context, node);
  if (waiters.count == 0) drop_waiters(node);
}

// A client that waits for the name itself is told before it gets the reply to what it asks.
void Waits::wake_own(const Context& context, Node& node) {
  auto found = clients_.find(context.client);
  if (found == clients_.end()) return;
  std::vector<std::size_t> places;
  for (const Wait& wait : found->second.waits) {
    for (std::size_t i = 0; i < wait.link_count; ++i) {
      const WaitLink& link = wait.links[i];
      bool is_told = link.node == &node && link.place != WaitLink::kOut;
      if (is_told && wait.kind != WaitKind::Take) places.push_back(link.place);
    }
  }
  for (std::size_t place : places) tell(context, *node.entry.waiters, place);
}

// The waiter leaves the others.  A wait that ends here has no other link among them.
void Waits::tell(const Context& context, Waiters& waiters, std::size_t place) {
  Waiters::Item item = std::exchange(waiters.items[place], {});
  --waiters.count;
  item.wait->links[item.link].place = WaitLink::kOut;
  if (!item.wait->is_over) name_exists(context, *item.wait);
}

void Waits::wake_some(std::size_t effort, const Context& context) {
  while (effort > 0 && !waking_.empty()) {
    Node& node = *waking_.front().node;
    Waiters& waiters = *node.entry.waiters;
    std::size_t& next = waiters.wake_next;
    next = std::max(next, waiters.first);
    for (; effort > 0 && next < waiters.wake_end; ++next, --effort) {
      const Wait* wait = waiters.items[next].wait;
      bool stays = wait == nullptr || (wait->kind == WaitKind::Take && !wait->is_over);
      if (!stays) tell(context, waiters, next);
    }
    if (next >= waiters.wake_end) stop_waking(waiters);
    if (waiters.count == 0) {
      drop_waiters(node);
      entries_.drop_if_unused(node);
    }
  }
  if (!waking_.empty()) waking_.splice(waking_.end(), waking_, waking_.begin());
}

void Waits::stop_waking(Waiters& waiters) {
  if (waiters.waking == nullptr) return;
  waking_.erase(waiters.waking->self);
  waiters.waking = nullptr;
}

void Waits::drop_waiters(Node& node) {
  stop_waking(*node.entry.waiters);
  node.entry.waiters.reset();
}

// Appends the link to its name's waiters.
void Waits::enqueue(Wait& wait, std::uint32_t link) {
  std::unique_ptr<Waiters>& waiters = wait.links[link].node->entry.waiters;
  if (!waiters) waiters = std::make_unique<Waiters>();
  compact_if_sparse(*waiters);
  wait.links[link].place = static_cast<std::uint32_t>(waiters->items.size());
  make_room(waiters->items);
  waiters->items.push_back({&wait, link});
  ++waiters->count;
}

// One more is about to be there.  Many names that the same clients wait for have equally many
// waiters; so that they do not all move for the same client, who would keep all others waiting, one
// gets half as much room again as it has, another one up to as much again.
void Waits::make_room(std::vector<Waiters::Item>& items) {
  constexpr std::size_t kFew = 64;
  constexpr std::size_t kShares = 64;
  std::size_t half = items.size() / 2;
  if (items.size() < items.capacity() || items.size() < kFew) return;
  share_ = (share_ + 39) % kShares;
  items.reserve(items.size() + half + half * share_ / kShares);
}

// Returns what it cost beyond the link, in names.
std::size_t Waits::leave(WaitLink& link) {
  std::unique_ptr<Waiters>& waiters = link.node->entry.waiters;
  waiters->items[link.place].wait = nullptr;
  link.place = WaitLink::kOut;
  if (--waiters->count > 0) return compact_if_sparse(*waiters);
  drop_waiters(*link.node);
  return 0;
}

// Closes the gaps if most waiters have left.  Returns what it cost, in names.
std::size_t Waits::compact_if_sparse(Waiters& waiters) {
  constexpr std::size_t kWorthwhile = 16;
  std::size_t before = waiters.items.size();
  if (before <= 2 * waiters.count + kWorthwhile) return 0;
  std::size_t next = 0;
  std::size_t wake_next = 0, wake_end = 0;
  for (std::size_t i = waiters.first; i < waiters.items.size(); ++i) {
    Waiters::Item item = waiters.items[i];
    if (item.wait == nullptr) continue;
    if (i < waiters.wake_next) wake_next = next + 1;
    if (i < waiters.wake_end) wake_end = next + 1;
    item.wait->links[item.link].place = static_cast<std::uint32_t>(next);
    waiters.items[next++] = item;
  }
  waiters.items.resize(next);
  waiters.first = 0;
  waiters.wake_next = wake_next;
  waiters.wake_end = wake_end;
  return before / effort::kWaitersMoved;
}

Wait& Waits::take_first(Node& node) {
  Waiters& waiters = *node.entry.waiters;
  while (waiters.items[waiters.first].wait == nullptr) ++waiters.first;
  Waiters::Item item = waiters.items[waiters.first++];
  item.wait->links[item.link].place = WaitLink::kOut;
  if (--waiters.count == 0) drop_waiters(node);
  return *item.wait;
}

std::optional<MonoTime> Waits::deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

std::size_t Waits::expire(MonoTime now, Replies& replies, std::size_t most) {
  std::size_t count = 0;
  for (; count < most && !deadlines_.empty() && deadlines_.begin()->first <= now; ++count) {
    Wait& wait = *deadlines_.begin()->second;
    replies.push_back({wait.client, reply::Number{0}});
    end(wait);
  }
  return count;
}

std::size_t Waits::count(ClientId client) const {
  auto found = clients_.find(client);
  return found != clients_.end() ? found->second.waits.size() : 0;
}

std::vector<PendingWait> Waits::pending(std::size_t max_count, std::size_t max_names) const {
  constexpr std::size_t kMaxNameBytes = 1024;
  std::vector<PendingWait> found;
  for (const auto& [id, client] : clients_) {
    for (const Wait& wait : client.waits) {
      if (found.size() == max_count) return found;
      PendingWait& one = found.emplace_back(PendingWait{id, wait.since, {}, wait.names_left});
      for (std::size_t i = 0; i < wait.link_count && one.missing.size() < max_names; ++i) {
        const WaitLink& link = wait.links[i];
        if (link.place == WaitLink::kOut) continue;
        one.missing.emplace_back(std::string_view(link.node->name()).substr(0, kMaxNameBytes));
      }
    }
  }
  return found;
}

void Waits::clear() {
  deadlines_.clear();
  waking_.clear();
  ended_.clear();
  clients_ = decltype(clients_)();
  count_ = 0;
}

bool Waits::free_some(std::size_t& effort) {
  auto pay = [&effort](std::size_t cost) { effort -= std::min(effort, cost); };
  for (; effort > 0 && !deadlines_.empty(); pay(1)) deadlines_.erase(deadlines_.begin());
  for (; effort > 0 && !waking_.empty(); pay(1)) waking_.pop_front();
  for (; effort > 0 && !ended_.empty(); pay(1)) ended_.pop_front();
  while (effort > 0 && !clients_.empty()) {
    pay(1 + clients_.begin()->second.waits.size());
    clients_.erase(clients_.begin());
  }
  if (effort == 0) return false;
  clear();
  return true;
}

}  // namespace ddprun::store
