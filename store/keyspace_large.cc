// SPDX-License-Identifier: BSD-3-Clause
//
// The half of the keyspace that carries out requests about very many names, step by step, while
// others are served in between.
//
// Those that only read answer what was true when they began: whoever changes a name meanwhile first
// leaves what it held then with the request (remember()).
#include <algorithm>
#include <boost/unordered/unordered_map.hpp>
#include <iterator>
#include <utility>

#include "store/base/check.h"
#include "store/base/variant.h"
#include "store/keyspace.h"

namespace ddprun::store {
namespace {

// To copy so many bytes costs about as much as to find a name.
constexpr std::size_t kBytesPerName = 4096;

// A table that is being listed must not be laid out anew.
constexpr float kNeverRehash = 1e9F;

std::size_t effort_of(const KeyValue& pair) {
  return 1 + pair.value.size() / kBytesPerName;
}

}  // namespace

struct Keyspace::Large {
  // What a name held when the request began.
  struct Past {
    Value value;
    bool exists;
  };
  using Pasts = boost::unordered_map<std::string, Past, Hash, std::equal_to<>>;

  ClientId client;
  Request request;
  std::size_t next = 0;                      // the name, the pair, or the part of the table
  Pasts pasts;                               // of the names that have changed since
  std::optional<Pasts::iterator> next_past;  // of a LIST_KEYS that has seen all of the table
  Wait* wait = nullptr;                      // of a WAIT
  Usage promised{};                          // to the pairs of a MULTI_SET that are still to come
  Replies late{};  // of the client's other requests; they may not get in between
};

// One go of each operation.  `effort` is what is left of it.
struct Keyspace::Steps {
  Keyspace& space;
  Large& large;
  const Turn& turn;
  std::size_t effort;

  static Progress done(std::optional<std::string> fault = {}) { return {true, std::move(fault)}; }
  static Progress unfinished() { return {false, {}}; }

  bool has_effort(std::size_t needed = 1) {
    bool is_left = effort > 0;
    effort -= std::min(effort, needed);
    return is_left;
  }

  Progress operator()(const request::Check& r) {
    for (; large.next < r.keys.size(); ++large.next) {
      if (!has_effort()) return unfinished();
      if (existed(r.keys[large.next])) continue;
      turn.reply(reply::Byte{kNotReady});
      return done();
    }
    turn.reply(reply::Byte{kReady});
    return done();
  }

  Progress operator()(const request::MultiGet& r) {
    for (; large.next < r.keys.size(); ++large.next) {
      if (!has_effort()) return unfinished();
      turn.reply(reply::Bytes{held(r.keys[large.next])});
    }
    return done();
  }

  Progress operator()(const request::ListKeys&) {
    for (; large.next < space.entries_.bucket_count(); ++large.next) {
      if (!has_effort()) return unfinished();
      list_bucket(large.next);
    }
    if (!large.next_past) large.next_past = large.pasts.begin();
    for (auto& past = *large.next_past; past != large.pasts.end(); ++past) {
      if (!has_effort()) return unfinished();
      if (past->second.value) turn.reply(reply::Bytes{Value(past->first)});
    }
    return done();
  }

  Progress operator()(const request::Wait& r) {
    for (; large.next < r.keys.size(); ++large.next) {
      if (!has_effort()) return unfinished();
      if (auto fault = wait_for(r.keys[large.next])) {
        space.end_wait(*large.wait);
        return done(std::move(fault));
      }
    }
    space.tick(turn, *large.wait);  // for what begin() added
    return done();
  }

  Progress operator()(const request::MultiSet& r) {
    for (; large.next < r.pairs.size(); ++large.next) {
      const KeyValue& pair = r.pairs[large.next];
      if (!has_effort(effort_of(pair))) return unfinished();
      space.promise(-1, -static_cast<std::ptrdiff_t>(bytes_of(pair)));
      Node& node = space.find_or_create(pair.key);
      space.store(node, pair.value);
      space.wake_all(turn, node);
    }
    return done();
  }

  template <class Small>
  Progress operator()(const Small&) {
    check(false, "a small request was begun as a large one");
    return done();
  }

 private:
  const Large::Past* past_of(std::string_view name) const {
    if (large.pasts.empty()) return nullptr;
    auto found = large.pasts.find(name);
    return found != large.pasts.end() ? &found->second : nullptr;
  }

  bool existed(std::string_view name) const {
    const Large::Past* past = past_of(name);
    return past != nullptr ? past->exists : exists(space.find(name));
  }

  Value held(std::string_view name) const {
    if (const Large::Past* past = past_of(name)) return past->value;
    Node* node = space.find(name);
    return node != nullptr ? node->second.value : Value();
  }

  void list_bucket(std::size_t bucket) {
    auto end = space.entries_.end(bucket);
    for (auto place = space.entries_.begin(bucket); place != end; ++place) {
      const Node& node = *place;
      if (!node.second.value || past_of(node.first) != nullptr) continue;
      has_effort();
      turn.reply(reply::Bytes{Value(node.first)});
    }
  }

  std::optional<std::string> wait_for(std::string_view name) {
    Node* node = space.find(name);
    if (exists(node)) return std::nullopt;
    if (space.clients_.find(large.client)->second.awaited_keys >= space.limits_.max_awaited_keys) {
      return "waits for more than " + std::to_string(space.limits_.max_awaited_keys) +
             " keys at once";
    }
    if (node == nullptr && space.room_bytes() < name.size() + kNameOverheadBytes) {
      return "no room for WAIT of '" + std::string(name) + "'";
    }
    space.add_link(*large.wait, node != nullptr ? *node : space.find_or_create(name));
    return std::nullopt;
  }
};

Keyspace::Keyspace(KeyspaceLimits limits, Usage* shared, HashSeed seed)
    : limits_(limits), entries_(0, Hash{seed}), shared_(shared) {}

Keyspace::~Keyspace() {
  clear();
}

bool Keyspace::is_large(const Request& request) const {
  auto many = [this](std::size_t count) { return count > limits_.names_at_once; };
  return std::visit(Overloaded{[&](const request::Check& r) { return many(r.keys.size()); },
                               [&](const request::Wait& r) { return many(r.keys.size()); },
                               [&](const request::MultiGet& r) { return many(r.keys.size()); },
                               [&](const request::ListKeys&) {
                                 return many(entries_.size() + entries_.bucket_count());
                               },
                               [&](const request::MultiSet& r) {
                                 std::size_t effort = 0;
                                 for (const KeyValue& pair : r.pairs) effort += effort_of(pair);
                                 return many(effort);
                               },
                               [](const auto&) { return false; }},
                    request);
}

std::optional<std::string> Keyspace::begin(ClientId client, const Request& request, MonoTime now,
                                           Replies& replies) {
  check(!large_, "two large requests at once");
  Turn turn{client, now, &replies};
  if (!reservations_.empty()) release_all(turn, client, nullptr);
  Usage needed;
  const auto* set = std::get_if<request::MultiSet>(&request);
  if (set != nullptr) {
    if (auto fault = room_for(set->pairs, needed)) return fault;
  }
  large_ = std::make_unique<Large>(Large{
      .client = client, .request = request, .pasts = Large::Pasts(0, entries_.hash_function())});
  promise(static_cast<std::ptrdiff_t>(needed.promised_keys),
          static_cast<std::ptrdiff_t>(needed.promised_bytes));
  if (const auto* wait = std::get_if<request::Wait>(&request)) {
    large_->wait = &add_wait(turn, WaitKind::Names, wait->keys.size());
    large_->wait->keys_left = 1;  // so that it does not end before all names have been looked at
  } else if (std::holds_alternative<request::ListKeys>(request)) {
    entries_.max_load_factor(kNeverRehash);
    turn.reply(reply::Number{static_cast<std::int64_t>(key_count())});
  }
  return std::nullopt;
}

Keyspace::Progress Keyspace::proceed(std::size_t effort, MonoTime now, Replies& replies) {
  check(large_ != nullptr, "there is no large request to go on with");
  Turn turn{large_->client, now, &replies};
  Progress progress = std::visit(Steps{*this, *large_, turn, effort}, large_->request);
  if (progress.is_done) {
    for (Outgoing& late : large_->late) replies.push_back(std::move(late));
    end_large();
  }
  return progress;
}

void Keyspace::remember_for_large(const Node& node) {
  const Request& request = large_->request;
  if (std::holds_alternative<request::MultiSet>(request)) return;
  if (std::holds_alternative<request::Wait>(request)) return;
  bool lists = std::holds_alternative<request::ListKeys>(request);
  if (lists && entries_.bucket(node.first) < large_->next) return;
  large_->pasts.try_emplace(node.first, Large::Past{node.second.value, exists(&node)});
}

// The pieces of a reply stay together: what else its client is to be told comes after them.
void Keyspace::hold_back(Replies& replies, std::size_t first) {
  auto begin = replies.begin() + static_cast<std::ptrdiff_t>(first);
  auto is_early = [&](const Outgoing& one) { return one.to != large_->client; };
  auto late = std::stable_partition(begin, replies.end(), is_early);
  std::move(late, replies.end(), std::back_inserter(large_->late));
  replies.erase(late, replies.end());
}

// Sets room aside for pairs to come, or gives it back.
void Keyspace::promise(std::ptrdiff_t keys, std::ptrdiff_t bytes) {
  for (Usage* usage : {&large_->promised, &usage_, shared_}) {
    if (usage == nullptr) continue;
    usage->promised_keys += static_cast<std::size_t>(keys);
    usage->promised_bytes += static_cast<std::size_t>(bytes);
  }
}

void Keyspace::end_large() {
  if (!large_) return;
  const Usage& rest = large_->promised;
  promise(-static_cast<std::ptrdiff_t>(rest.promised_keys),
          -static_cast<std::ptrdiff_t>(rest.promised_bytes));
  entries_.max_load_factor(1.0F);
  large_.reset();
}

}  // namespace ddprun::store
