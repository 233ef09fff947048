// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/namespaces.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "store/base/check.h"
#include "store/base/variant.h"

namespace ddprun::store {
namespace {

// What values `request` brings; 0 where it brings none.
std::size_t stored_bytes(const Request& request) {
  return std::visit(
      Overloaded{
          [](const auto&) { return std::size_t{0}; },
          [](const request::Set& r) {
            return cost::of_pair({r.key, r.value});
          },
          [](const request::CompareSet& r) {
            return cost::of_pair({r.key, r.desired});
          },
          [](const request::Append& r) {
            return cost::of_pair({r.key, r.value});
          },
          [](const request::MultiSet& r) {
            std::size_t bytes = 0;
            for (const KeyValue& pair : r.pairs) bytes += cost::of_pair(pair);
            return bytes;
          },
          [](const request::QueuePush& r) { return cost::of_queue(r.queue, r.value.size()); },
          [](const request::LastWill& r) { return cost::of_queue(r.queue, r.item.size()); },
      },
      request);
}

}  // namespace

Namespaces::Namespaces(KeyspaceLimits limits, std::size_t max_named, HashSeed seed)
    : limits_(limits), max_named_(max_named), seed_(seed), common_(make("")) {}

std::unique_ptr<Namespace> Namespaces::make(std::string name) {
  return std::unique_ptr<Namespace>(
      new Namespace{std::move(name), Keyspace(limits_, &usage_, seed_)});
}

void Namespaces::reserve(std::string name) {
  check(find(name) == nullptr, "a namespace cannot be reserved any more");
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  KeyspaceLimits limits = limits_;
  limits.max_keys = limits.max_queue_items = kUnlimited;
  if (limits_.max_bytes != kUnlimited) limits.max_bytes = kReservedBytes;
  auto ns = std::unique_ptr<Namespace>(new Namespace{
      .name = name, .keyspace = Keyspace(limits, nullptr, seed_), .is_reserved = true});
  reserved_.push_back(named_.emplace(std::move(name), std::move(ns)).first->second.get());
}

Usage Namespaces::usage() const {
  Usage usage = usage_;
  for (const Namespace* ns : reserved_) {
    usage.keys += ns->keyspace.key_count();
    usage.bytes += ns->keyspace.bytes();
  }
  return usage;
}

std::optional<std::string> Namespaces::execute(ClientId client, Namespace*& ns,
                                               const Request& request, MonoTime now,
                                               Replies& replies) {
  auto fault = ns->keyspace.execute(client, request, now, replies);
  note_pending_work(ns->keyspace);
  const auto* move = std::get_if<request::EnterNamespace>(&request);
  if (!fault && move != nullptr) return enter(client, ns, move->name, now, replies);
  return fault;
}

// A client takes nothing along: what it waits for and its last will belong to the namespace that it
// is in.
std::optional<std::string> Namespaces::enter(ClientId client, Namespace*& ns, std::string_view name,
                                             MonoTime now, Replies& replies) {
  if (!ns->keyspace.is_unknown(client)) {
    return "ENTER_NAMESPACE from a namespace in which it waits or has a last will";
  }
  Namespace* target = name.empty() ? common_.get() : const_cast<Namespace*>(find(name));
  if (target == nullptr && named_.size() >= max_named_) make_room();
  if (target == nullptr && named_.size() < max_named_) {
    target = named_.emplace(name, make(std::string(name))).first->second.get();
  }
  replies.push_back({client, reply::Byte{target != nullptr ? kReady : kRefused}});
  if (target == nullptr) return std::nullopt;
  if (target != common_.get()) {
    ++target->members;
    deserted_.erase(target->left);
  }
  disconnect(client, *std::exchange(ns, target), now, replies);
  return std::nullopt;
}

void Namespaces::disconnect(ClientId client, Namespace& ns, MonoTime now, Replies& replies) {
  ns.keyspace.disconnect(client, now, replies);
  note_pending_work(ns.keyspace);
  if (&ns == common_.get()) return;
  --ns.members;
  if (ns.members == 0 && !ns.is_reserved) deserted_[ns.left = ++departures_] = &ns;
  drop_if_unused(ns);
}

bool Namespaces::must_wait_for(std::size_t unfreed, ClientId client, const Namespace& ns,
                               const Request& request) const {
  if (unfreed == 0 || is_own(client) || ns.is_reserved) return false;
  std::size_t bytes = stored_bytes(request);
  std::size_t room =
      limits_.max_bytes - std::min(limits_.max_bytes, usage_.bytes + usage_.promised_bytes);
  return bytes > 0 && bytes <= room && unfreed > room - bytes;
}

void Namespaces::enqueue(ClientId client, Namespace& ns, const Request& request) {
  large_.push_back({client, &ns, request});
}

std::optional<Namespaces::Done> Namespaces::proceed(std::size_t effort, MonoTime now,
                                                    Replies& replies) {
  constexpr unsigned kKinds = 3;
  for (unsigned i = 0; i < kKinds; ++i) {
    kind_of_work_ = (kind_of_work_ + 1) % kKinds;
    if (kind_of_work_ == 0 && !large_.empty()) return go_on(effort, now, replies);
    if (kind_of_work_ == 1 && needs_cleanup_) return clean_up(effort, now, replies), std::nullopt;
    if (kind_of_work_ == 2 && !former_.empty()) return free_some(effort), std::nullopt;
  }
  return std::nullopt;
}

// With the large request that came first.
std::optional<Namespaces::Done> Namespaces::go_on(std::size_t effort, MonoTime now,
                                                  Replies& replies) {
  Queued& first = large_.front();
  Keyspace& keyspace = first.ns->keyspace;
  Done done{.client = first.client, .fault = {}};
  if (!std::exchange(first.has_begun, true)) {
    done.fault = keyspace.begin(first.client, first.request, now, replies);
  }
  if (!done.fault) {
    Keyspace::Progress progress = keyspace.proceed(effort, now, replies);
    note_pending_work(keyspace);
    if (!progress.is_done) return std::nullopt;
    done.fault = std::move(progress.fault);
  }
  large_.pop_front();
  return done;
}

// In one namespace after the other.
void Namespaces::clean_up(std::size_t effort, MonoTime now, Replies& replies) {
  Namespace* next = nullptr;
  for (auto& [name, ns] : named_) {
    bool is_behind = name > last_cleaned_;
    if (!ns->keyspace.needs_cleanup() || (!is_behind && next != nullptr)) continue;
    next = ns.get();
    if (is_behind) break;
  }
  bool is_behind = next != nullptr && next->name > last_cleaned_;
  if (!is_behind && common_->keyspace.needs_cleanup()) next = common_.get();
  if (next == nullptr) {
    needs_cleanup_ = false;
    return;
  }
  last_cleaned_ = next->name;
  next->keyspace.clean_up(effort, now, replies);
  note_pending_work(next->keyspace);
  if (next != common_.get()) drop_if_unused(*next);
}

void Namespaces::free_some(std::size_t effort) {
  if (former_.front().keyspace.free_some(effort)) former_.pop_front();
}

std::size_t Namespaces::former_bytes() const {
  std::size_t bytes = 0;
  for (const Former& former : former_) bytes += former.bytes;
  return bytes;
}

void Namespaces::drop_if_unused(Namespace& ns) {
  if (ns.is_reserved) return;
  if (ns.members > 0 || ns.keyspace.bytes() > 0) return;
  deserted_.erase(ns.left);
  named_.erase(named_.find(ns.name));
}

// By what has stood longest in a namespace that no client is in.
void Namespaces::make_room() {
  if (deserted_.empty()) return;
  Namespace& longest = *deserted_.begin()->second;
  deserted_.erase(deserted_.begin());
  free_later(longest.keyspace);
  named_.erase(named_.find(longest.name));
}

void Namespaces::renew_common() {
  std::erase_if(large_, [this](const Queued& one) { return one.ns == common_.get(); });
  free_later(common_->keyspace);
}

// Takes what is in it; proceed() frees it.
void Namespaces::free_later(Keyspace& keyspace) {
  std::size_t bytes = keyspace.bytes();
  Former& former = former_.emplace_back(Former{Keyspace(limits_, &usage_, seed_), bytes});
  std::swap(former.keyspace, keyspace);
  former.keyspace.uncount();
}

void Namespaces::expire(MonoTime now, Replies& replies) {
  // Some milliseconds.
  constexpr std::size_t kExpiredAtOnce = 4096;
  deadline_.reset();
  std::size_t left = kExpiredAtOnce - common_->keyspace.expire(now, replies, kExpiredAtOnce);
  note_pending_work(common_->keyspace);
  for (auto& [name, ns] : named_) {
    left -= ns->keyspace.expire(now, replies, left);
    note_pending_work(ns->keyspace);
  }
}

void Namespaces::note_pending_work(const Keyspace& touched) {
  if (!touched.has_pending_work()) return;
  if (touched.needs_cleanup()) needs_cleanup_ = true;
  std::optional<MonoTime> deadline = touched.deadline();
  if (deadline && (!deadline_ || *deadline < *deadline_)) deadline_ = deadline;
}

const Namespace* Namespaces::find(std::string_view name) const {
  if (name.empty()) return common_.get();
  auto found = named_.find(name);
  return found != named_.end() ? found->second.get() : nullptr;
}

std::size_t Namespaces::wait_count() const {
  std::size_t count = 0;
  for_each([&](const Namespace& ns) { count += ns.keyspace.wait_count(); });
  return count;
}

}  // namespace ddprun::store
