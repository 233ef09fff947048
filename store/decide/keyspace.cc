// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/keyspace.h"

#include <algorithm>
#include <utility>

#include "store/base/check.h"
#include "store/decide/entries.h"
#include "store/decide/execution.h"
#include "store/decide/large_request.h"
#include "store/decide/last_wills.h"
#include "store/decide/queues.h"

namespace ddprun::store {
// The objects behind the face, in the order in which one uses another.
struct Keyspace::Parts {
  Parts(const KeyspaceLimits& limits_, Usage* shared, HashSeed seed)
      : limits(limits_), budget(limits, shared), entries(seed, budget), last_wills(budget) {}

  KeyspaceLimits limits;
  Budget budget;
  Entries entries;
  Waits waits{limits, budget, entries};
  Queues queues{limits, entries, waits};
  LastWills last_wills;
  const Execution execution{limits, budget, entries, waits, queues, last_wills};
  std::unique_ptr<LargeRequest> large;
};

Keyspace::Keyspace(KeyspaceLimits limits, Usage* shared, HashSeed seed)
    : parts_(std::make_unique<Parts>(limits, shared, seed)) {}

Keyspace::~Keyspace() {
  if (parts_) clear();
}

Keyspace::Keyspace(Keyspace&&) noexcept = default;

Keyspace& Keyspace::operator=(Keyspace&& other) noexcept {
  std::swap(parts_, other.parts_);
  return *this;
}

std::optional<std::string> Keyspace::execute(ClientId client, const Request& request, MonoTime now,
                                             Replies& replies) {
  Parts& p = *parts_;
  Context context{client, now, &replies};
  std::size_t before = replies.size();
  p.waits.begin_step();
  if (p.queues.has_reservations()) {
    const auto* pop = std::get_if<request::QueuePop>(&request);
    p.queues.release(context, client, pop != nullptr ? p.entries.find(pop->queue) : nullptr);
  }
  auto fault = store::execute(request, p.execution, context);
  if (p.large) p.large->hold_back(replies, before);
  return fault;
}

std::size_t Keyspace::effort_of(const Request& request) const {
  return store::effort_of(request, parts_->entries);
}

bool Keyspace::is_large(const Request& request, std::size_t effort) const {
  return effort > parts_->limits.names_at_once && has_steps(request);
}

std::optional<std::string> Keyspace::begin(ClientId client, const Request& request, MonoTime now,
                                           Replies& replies) {
  Parts& p = *parts_;
  check(!p.large, "two large requests at once");
  Context context{client, now, &replies};
  if (p.queues.has_reservations()) p.queues.release(context, client, nullptr);
  const auto* set = std::get_if<request::MultiSet>(&request);
  if (set != nullptr && !p.budget.has_room_for(client, set->pairs)) {
    return no_room_for_pairs(set->pairs.size());
  }
  if (std::holds_alternative<request::Wait>(request)) {
    if (auto fault = p.waits.too_many(client)) return fault;
  }
  p.large =
      std::make_unique<LargeRequest>(p.limits, p.budget, p.entries, p.waits, context, request);
  return std::nullopt;
}

Keyspace::Progress Keyspace::proceed(std::size_t effort, MonoTime now, Replies& replies) {
  check(parts_->large != nullptr, "there is no large request to go on with");
  parts_->waits.begin_step();
  Progress progress = parts_->large->proceed(effort, now, replies);
  if (progress.is_done) parts_->large.reset();
  return progress;
}

bool Keyspace::needs_cleanup() const {
  return parts_->waits.needs_cleanup() || parts_->queues.has_offers();
}

void Keyspace::clean_up(std::size_t effort, MonoTime now, Replies& replies) {
  std::size_t before = replies.size();
  parts_->waits.clean_up(effort, now, replies);
  if (parts_->queues.has_offers()) parts_->queues.offer_some(now, replies);
  if (parts_->large) parts_->large->hold_back(replies, before);
}

void Keyspace::disconnect(ClientId client, MonoTime now, Replies& replies) {
  Parts& p = *parts_;
  Context context{client, now, &replies};
  std::size_t before = replies.size();
  p.waits.cancel_all(client);
  if (p.queues.has_reservations()) p.queues.release(context, client, nullptr);
  if (std::optional<LastWill> will = p.last_wills.take(client)) {
    p.queues.push(context, will->queue, std::move(will->item));
  }
  if (p.large) p.large->hold_back(replies, before);
}

void Keyspace::clear() {
  Parts& p = *parts_;
  p.large.reset();
  p.budget.remove_all();
  p.queues.clear();
  p.waits.clear();
  p.last_wills.clear_all();
  p.entries.clear();
}

void Keyspace::uncount() {
  parts_->large.reset();
  parts_->budget.remove_all();
}

bool Keyspace::free_some(std::size_t effort) {
  Parts& p = *parts_;
  return p.waits.free_some(effort) && p.queues.free_some(effort) &&
         p.last_wills.free_some(effort) && p.entries.free_some(effort);
}

bool Keyspace::has_pending_work() const {
  return parts_->waits.has_pending_work() || parts_->queues.has_reservations() ||
         parts_->queues.has_offers();
}

std::optional<MonoTime> Keyspace::deadline() const {
  std::optional<MonoTime> held = parts_->queues.deadline();
  std::optional<MonoTime> taken = parts_->waits.deadline();
  if (!held || !taken) return held ? held : taken;
  return std::min(*held, *taken);
}

std::size_t Keyspace::expire(MonoTime now, Replies& replies, std::size_t most) {
  std::size_t before = replies.size();
  std::size_t count = parts_->queues.expire(now, replies, most);
  count += parts_->waits.expire(now, replies, most - count);
  if (parts_->large) parts_->large->hold_back(replies, before);
  return count;
}

std::vector<PendingWait> Keyspace::pending(std::size_t max_count, std::size_t max_names) const {
  return parts_->waits.pending(max_count, max_names);
}

Value Keyspace::peek(std::string_view key) const {
  return parts_->entries.value_of(key);
}

std::size_t Keyspace::queue_length(std::string_view queue) const {
  const Node* node = parts_->entries.find(queue);
  return node != nullptr && node->entry.queue ? node->entry.queue->items.size() : 0;
}

Value Keyspace::take_last_will(ClientId client, std::string_view queue) {
  const LastWill* will = parts_->last_wills.find(client);
  if (will == nullptr || will->queue != queue) return {};
  return std::move(parts_->last_wills.take(client)->item);
}

void Keyspace::push(ClientId client, std::string_view queue, Value item, MonoTime now,
                    Replies& replies) {
  Parts& p = *parts_;
  std::size_t before = replies.size();
  p.queues.push({client, now, &replies}, queue, std::move(item));
  if (p.large) p.large->hold_back(replies, before);
}

bool Keyspace::is_unknown(ClientId client) const {
  return !parts_->waits.has(client) && !parts_->queues.has_reservations(client) &&
         !parts_->last_wills.has(client);
}

std::size_t Keyspace::key_count() const {
  return parts_->budget.usage().keys;
}

std::size_t Keyspace::bytes() const {
  return parts_->budget.usage().bytes;
}

std::size_t Keyspace::wait_count() const {
  return parts_->waits.count();
}

std::size_t Keyspace::wait_count(ClientId client) const {
  return parts_->waits.count(client);
}

}  // namespace ddprun::store
