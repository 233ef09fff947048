// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/namespaces.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "store/base/check.h"

namespace ddprun::store {

Spaces::Spaces(KeyspaceLimits limits, std::size_t max_named, HashSeed seed)
    : limits_(limits), max_named_(max_named), seed_(seed), common_(make("")) {}

std::unique_ptr<Space> Spaces::make(std::string name) {
  return std::unique_ptr<Space>(new Space{std::move(name), Keyspace(limits_, &usage_, seed_)});
}

void Spaces::reserve(std::string name) {
  check(reserved_ == nullptr && find(name) == nullptr, "a space cannot be reserved any more");
  constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
  KeyspaceLimits limits = limits_;
  limits.max_keys = limits.max_queue_items = kUnlimited;
  if (limits_.max_bytes != kUnlimited) limits.max_bytes = kReservedBytes;
  auto space = std::unique_ptr<Space>(new Space{name, Keyspace(limits, nullptr, seed_)});
  reserved_ = named_.emplace(std::move(name), std::move(space)).first->second.get();
}

Usage Spaces::usage() const {
  Usage usage = usage_;
  if (reserved_ == nullptr) return usage;
  usage.keys += reserved_->keyspace.key_count();
  usage.bytes += reserved_->keyspace.bytes();
  return usage;
}

std::optional<std::string> Spaces::execute(ClientId client, Space*& space, const Request& request,
                                           MonoTime now, Replies& replies) {
  auto fault = space->keyspace.execute(client, request, now, replies);
  heed(space->keyspace);
  const auto* move = std::get_if<request::Enter>(&request);
  if (!fault && move != nullptr) return enter(client, space, move->space, now, replies);
  return fault;
}

// A client takes nothing along: what it waits for and its will belong to the space that it is in.
std::optional<std::string> Spaces::enter(ClientId client, Space*& space, std::string_view name,
                                         MonoTime now, Replies& replies) {
  if (!space->keyspace.is_stranger(client)) {
    return "ENTER from a space in which it waits or has left a will";
  }
  Space* target = name.empty() ? common_.get() : const_cast<Space*>(find(name));
  if (target == nullptr && named_.size() < max_named_) {
    target = named_.emplace(name, make(std::string(name))).first->second.get();
  }
  replies.push_back({client, reply::Byte{target != nullptr ? kReady : kRefused}});
  if (target == nullptr) return std::nullopt;
  if (target != common_.get()) ++target->members;
  disconnect(client, *std::exchange(space, target), now, replies);
  return std::nullopt;
}

void Spaces::disconnect(ClientId client, Space& space, MonoTime now, Replies& replies) {
  space.keyspace.disconnect(client, now, replies);
  heed(space.keyspace);
  if (&space == common_.get()) return;
  --space.members;
  drop_if_unused(space);
}

void Spaces::enqueue(ClientId client, Space& space, const Request& request) {
  large_.push_back({client, &space, request});
}

std::optional<Spaces::Done> Spaces::proceed(std::size_t effort, MonoTime now, Replies& replies) {
  if (is_untidy_ && tidy(effort)) return std::nullopt;
  if (large_.empty()) return std::nullopt;
  Queued& first = large_.front();
  Keyspace& keyspace = first.space->keyspace;
  Done done{.client = first.client, .fault = {}};
  if (!std::exchange(first.has_begun, true)) {
    done.fault = keyspace.begin(first.client, first.request, now, replies);
  }
  if (!done.fault) {
    Keyspace::Progress progress = keyspace.proceed(effort, now, replies);
    heed(keyspace);
    if (!progress.is_done) return std::nullopt;
    done.fault = std::move(progress.fault);
  }
  large_.pop_front();
  return done;
}

// Answers whether there was anything to tidy up.
bool Spaces::tidy(std::size_t effort) {
  if (common_->keyspace.has_leftovers()) {
    common_->keyspace.tidy(effort);
    return true;
  }
  for (auto& [name, space] : named_) {
    if (!space->keyspace.has_leftovers()) continue;
    space->keyspace.tidy(effort);
    drop_if_unused(*space);
    return true;
  }
  return is_untidy_ = false;
}

void Spaces::drop_if_unused(Space& space) {
  if (&space == reserved_) return;
  if (space.members == 0 && space.keyspace.bytes() == 0) named_.erase(named_.find(space.name));
}

void Spaces::renew_common() {
  std::erase_if(large_, [this](const Queued& one) { return one.space == common_.get(); });
  common_->keyspace.clear();
}

void Spaces::expire(MonoTime now, Replies& replies) {
  deadline_.reset();
  common_->keyspace.expire(now, replies);
  heed(common_->keyspace);
  for (auto& [name, space] : named_) {
    space->keyspace.expire(now, replies);
    heed(space->keyspace);
  }
}

void Spaces::heed(const Keyspace& touched) {
  if (touched.has_leftovers()) is_untidy_ = true;
  std::optional<MonoTime> deadline = touched.deadline();
  if (deadline && (!deadline_ || *deadline < *deadline_)) deadline_ = deadline;
}

const Space* Spaces::find(std::string_view name) const {
  if (name.empty()) return common_.get();
  auto found = named_.find(name);
  return found != named_.end() ? found->second.get() : nullptr;
}

std::size_t Spaces::wait_count() const {
  std::size_t count = 0;
  for_each([&](const Space& space) { count += space.keyspace.wait_count(); });
  return count;
}

}  // namespace ddprun::store
