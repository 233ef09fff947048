// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host_etcd.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "store/base/number.h"
#include "store/clock.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

// What is written down of a run that has ended well stays so long, as torch's state in etcd does.
constexpr Duration kKeepEnded = std::chrono::hours(2);
// While etcd does not answer.
constexpr Duration kPause = std::chrono::seconds(1);
// A lease is renewed so many times before it would be over.
constexpr int kRenewals = 3;

MonoTime soon() {
  return mono_now() + kRegistryPatience;
}

bool is_same(const HostEntry& one, const HostEntry& other) {
  return one.generation == other.generation && one.node == other.node && one.at == other.at;
}

}  // namespace

EtcdRegistry::EtcdRegistry(asio::any_io_executor executor, EtcdPlace place, const std::string& run)
    : place_(std::move(place)),
      host_key_(place_.prefix + "/host/" + run),
      file_key_(place_.prefix + "/file/" + run),
      alive_key_(place_.prefix + "/alive/" + run),
      client_(executor, place_.client, [this](const std::string& line) { log_(line); }),
      closed_(executor),
      lease_is_due_(executor),
      tasks_(executor) {}

EtcdRegistry::~EtcdRegistry() = default;

std::string EtcdRegistry::name() const {
  std::string members;
  for (const Endpoint& member : place_.client.members) {
    if (!members.empty()) members += ',';
    members += to_string(member);
  }
  return "etcd at " + members;
}

store::Async<HostEntry> EtcdRegistry::newest() {
  return until_closed(read_newest());
}

store::Async<bool> EtcdRegistry::claim(HostEntry entry) {
  return until_closed(write_claim(std::move(entry)));
}

store::Async<bool> EtcdRegistry::note(HostEntry entry) {
  return until_closed(write_note(std::move(entry)));
}

void EtcdRegistry::close() {
  is_closed_ = true;
  closed_.notify();
  lease_is_due_.notify();
}

asio::awaitable<void> EtcdRegistry::stop() {
  co_await tasks_.join();
}

template <class T>
store::Async<T> EtcdRegistry::until_closed(store::Async<T> call) {
  using namespace asio::experimental::awaitable_operators;
  if (!is_closed_) {
    auto outcome = co_await (std::move(call) || closed_.wait());
    if (outcome.index() == 0) co_return std::get<0>(std::move(outcome));
  }
  co_return Error{Errc::Closed, name() + ": this node asks no more"};
}

store::Async<HostEntry> EtcdRegistry::read_newest() {
  auto found = co_await read(soon());
  if (!found) co_return found.error();
  co_return std::move(found->entry);
}

store::Async<EtcdRegistry::Found> EtcdRegistry::read(MonoTime deadline) {
  std::vector<std::string> keys;
  keys.push_back(host_key_);
  keys.push_back(file_key_);
  keys.push_back(alive_key_);
  auto pairs = co_await client_.read(std::move(keys), deadline);
  if (!pairs) co_return pairs.error();
  co_return decode(*pairs);
}

Result<EtcdRegistry::Found> EtcdRegistry::decode(const std::vector<etcd::KeyValue>& pairs) const {
  Found found;
  std::optional<HostEntry> file;
  std::uint64_t alive = 0;
  for (const etcd::KeyValue& pair : pairs) {
    if (pair.key == alive_key_) {
      alive = number_in<std::uint64_t>(pair.value).value_or(0);
      continue;
    }
    auto entry = decode_host_entry(pair.value);
    if (!entry) {
      return Error{Errc::InvalidInput,
                   name() + ": the value of " + pair.key + ": " + to_string(entry.error())};
    }
    if (pair.key == host_key_) {
      found.revision = pair.revision;
      found.entry = std::move(*entry);
    } else {
      file = std::move(*entry);
    }
  }
  if (found.entry.generation == 0) return found;
  found.entry.is_silent = alive != found.entry.generation;
  if (!file) return found;
  found.entry.says_file = file->generation == found.entry.generation;
  found.entry.file = std::move(file->file);
  return found;
}

// Nothing has changed since `before`, so the entry is written, and true is returned.
store::Async<bool> EtcdRegistry::write(const Found& before, const HostEntry& entry,
                                       MonoTime deadline) {
  etcd::Txn txn;
  txn.conditions.push_back({.key = host_key_, .revision = before.revision});
  std::int64_t lease = 0;
  bool has_ended = entry.is_over && entry.says_file && !entry.file;
  if (has_ended) {
    auto granted = co_await client_.grant(kKeepEnded, deadline);
    if (!granted) co_return granted.error();
    lease = granted->id;
  }
  HostEntry head = entry;
  head.says_file = false;
  head.file.reset();
  txn.puts.push_back({.key = host_key_, .value = encode(head), .lease = lease});
  if (entry.says_file)
    txn.puts.push_back({.key = file_key_, .value = encode(entry), .lease = lease});
  if (entry.is_over) txn.removals.push_back(alive_key_);
  auto reply = co_await client_.commit(std::move(txn), deadline);
  if (!reply) co_return reply.error();
  co_return reply->has_value() && (*reply)->has_happened;
}

store::Async<bool> EtcdRegistry::write_claim(HostEntry entry) {
  const MonoTime deadline = soon();
  while (true) {
    auto found = co_await read(deadline);
    if (!found) co_return found.error();
    // An attempt before this one, whose answer was lost, may have been carried out.
    bool is_own = is_same(found->entry, entry);
    if (!is_own && found->entry.generation + 1 != entry.generation) co_return false;
    auto written = co_await write(*found, entry, deadline);
    if (!written) co_return written.error();
    if (!*written) continue;
    host(entry.generation);
    co_return true;
  }
}

store::Async<bool> EtcdRegistry::write_note(HostEntry entry) {
  const MonoTime deadline = soon();
  while (true) {
    auto found = co_await read(deadline);
    if (!found) co_return found.error();
    const HostEntry& there = found->entry;
    bool is_anothers = there.generation == entry.generation && there.node != entry.node;
    if (there.generation > entry.generation || is_anothers) co_return false;
    auto written = co_await write(*found, entry, deadline);
    if (!written) co_return written.error();
    if (!*written) continue;
    // Meanwhile this node may have claimed a later one.
    if (entry.generation >= hosting_) host(entry.is_over ? 0 : entry.generation);
    co_return true;
  }
}

// From now on this generation is kept alive; 0: none is.
void EtcdRegistry::host(std::uint64_t generation) {
  bool has_begun = hosting_ != generation && generation != 0;
  hosting_ = generation;
  if (!has_begun || is_closed_) return;
  lease_is_due_.notify();
  if (!std::exchange(keeps_alive_, true)) tasks_.spawn(keep_alive());
}

asio::awaitable<void> EtcdRegistry::keep_alive() {
  bool is_mute = false;
  while (!is_closed_ && hosting_ != 0) {
    auto renewed = co_await until_closed(renew(hosting_));
    if (is_closed_) break;
    bool fails = !renewed;
    if (fails && !is_mute) {
      log_("etcd cannot be told that this node hosts the run, which goes on: " +
           to_string(renewed.error()));
    } else if (!fails && is_mute) {
      log_("etcd answers again");
    }
    is_mute = fails;
    bool is_done = renewed && *renewed;
    Duration pause = is_done ? place_.lease / kRenewals : kPause;
    co_await lease_is_due_.wait_until(mono_now() + pause);
  }
  keeps_alive_ = false;
}

// False: it is to be tried again soon.
store::Async<bool> EtcdRegistry::renew(std::uint64_t generation) {
  const MonoTime deadline = soon();
  if (lease_ != 0) {
    auto kept = co_await client_.keep_alive(lease_, deadline);
    if (!kept) co_return kept.error();
    if (kept->ttl == Duration::zero()) lease_ = 0;
  }
  auto found = co_await read(deadline);
  if (!found) co_return found.error();
  if (generation != hosting_) co_return true;
  if (found->entry.generation > generation) {  // another node hosts
    hosting_ = 0;
    co_return true;
  }
  if (lease_ != 0 && !found->entry.is_silent) co_return true;
  if (lease_ == 0) {
    auto granted = co_await client_.grant(place_.lease, deadline);
    if (!granted) co_return granted.error();
    lease_ = granted->id;
  }
  etcd::Txn txn;
  txn.conditions.push_back({.key = host_key_, .revision = found->revision});
  txn.puts.push_back({.key = alive_key_, .value = std::to_string(generation), .lease = lease_});
  auto reply = co_await client_.commit(std::move(txn), deadline);
  if (!reply) co_return reply.error();
  co_return reply->has_value() && (*reply)->has_happened;
}

}  // namespace ddprun::rendezvous
