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
#include "store/decide/keyspace.h"

namespace ddprun::store {
namespace {

// To copy so many bytes costs about as much as to find a name.
constexpr std::size_t kBytesPerName = 4096;

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
  struct HashOf {
    using is_transparent = void;
    HashSeed seed;
    std::size_t operator()(std::string_view name) const { return sip_hash(seed, name); }
  };
  using Pasts = boost::unordered_map<std::string, Past, HashOf, std::equal_to<>>;

  ClientId client;
  Request request;
  std::size_t next = 0;                      // the name or the pair
  std::optional<Hash> next_hash = 0;         // of a LIST_KEYS: all below it have been listed
  Pasts pasts;                               // of the names that have changed since
  std::optional<Pasts::iterator> next_past;  // of a LIST_KEYS that has seen all of the table
  Wait* wait = nullptr;                      // of a WAIT
  Usage promised{};                          // to the pairs of a MULTI_SET that are still to come
  Replies late{};  // of the client's other requests; they may not get in between
};

// One go of each operation.  `effort` is what is left of it.
struct Keyspace::Steps {
  Keyspace& keyspace;
  Large& large;
  const Context& turn;
  std::size_t effort;

  static Progress done(std::optional<std::string> fault = {}) { return {true, std::move(fault)}; }
  static Progress unfinished() { return {false, {}}; }

  bool has_effort(std::size_t needed = 1) {
    bool is_left = effort > 0;
    effort -= std::min(effort, needed);
    return is_left;
  }

  Progress operator()(const request::Check& r) {
    bool is_missing = false;
    bool is_last = walk(r.keys, [&](std::string_view key, Hash hash) {
      is_missing = !existed(key, hash);
      return !is_missing;
    });
    if (!is_missing && !is_last) return unfinished();
    turn.reply(reply::Byte{is_missing ? kNotReady : kReady});
    return done();
  }

  Progress operator()(const request::MultiGet& r) {
    Gathering gathering(turn, std::min(effort, r.keys.size() - large.next));
    bool is_last = walk(r.keys, [&](std::string_view key, Hash hash) {
      gathering.add(held(key, hash));
      return true;
    });
    gathering.finish();
    return is_last ? done() : unfinished();
  }

  Progress operator()(const request::ListKeys&) {
    while (large.next_hash) {
      if (!has_effort()) return unfinished();
      large.next_hash =
          keyspace.entries_.visit_some(*large.next_hash, [this](const Node& node) { list(node); });
    }
    if (!large.next_past) large.next_past = large.pasts.begin();
    for (auto& past = *large.next_past; past != large.pasts.end(); ++past) {
      if (!has_effort()) return unfinished();
      if (past->second.value) turn.reply(reply::Bytes{Value(past->first)});
    }
    return done();
  }

  Progress operator()(const request::Wait& r) {
    std::optional<std::string> fault;
    bool is_last = walk(r.keys, [&](std::string_view key, Hash hash) {
      fault = wait_for(key, hash);
      return !fault;
    });
    if (fault) {
      keyspace.end_wait(*large.wait);
      return done(std::move(fault));
    }
    if (!is_last) return unfinished();
    keyspace.tick(turn, *large.wait);  // for what begin() added
    return done();
  }

  Progress operator()(const request::MultiSet& r) {
    auto key_of = [&](std::size_t i) { return r.pairs[i].key; };
    auto set = [&](std::size_t i, Hash hash) {
      const KeyValue& pair = r.pairs[i];
      if (!has_effort(effort_of(pair))) return false;
      keyspace.promise(-1, -static_cast<std::ptrdiff_t>(bytes_of(pair)));
      Node& node = keyspace.find_or_create(pair.key, hash);
      keyspace.store(node, pair.value);
      keyspace.wake_all(turn, node);
      return true;
    };
    large.next = keyspace.entries_.walk(large.next, r.pairs.size(), key_of, set);
    return large.next == r.pairs.size() ? done() : unfinished();
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

  // Calls visit(key, hash) for those whose turn it is, as far as the effort goes, until that
  // answers false.  Answers whether all have been visited.
  template <class Visit>
  bool walk(std::span<const std::string_view> keys, Visit visit) {
    auto key_of = [&](std::size_t i) { return keys[i]; };
    large.next = keyspace.entries_.walk(
        large.next, keys.size(), key_of,
        [&](std::size_t i, Hash hash) { return has_effort() && visit(keys[i], hash); });
    return large.next == keys.size();
  }

  bool existed(std::string_view name, Hash hash) const {
    const Large::Past* past = past_of(name);
    return past != nullptr ? past->exists : exists(keyspace.entries_.find(name, hash));
  }

  Value held(std::string_view name, Hash hash) const {
    if (const Large::Past* past = past_of(name)) return past->value;
    const Node* node = keyspace.entries_.find(name, hash);
    return node != nullptr ? node->entry.value : Value();
  }

  void list(const Node& node) {
    has_effort();
    if (!node.entry.value || past_of(node.name()) != nullptr) return;
    turn.reply(reply::Bytes{Value(node.name())});
  }

  std::optional<std::string> wait_for(std::string_view name, Hash hash) {
    Node* node = keyspace.entries_.find(name, hash);
    if (exists(node)) return std::nullopt;
    if (keyspace.clients_.find(large.client)->second.awaited_keys >=
        keyspace.limits_.max_awaited_keys) {
      return "waits for more than " + std::to_string(keyspace.limits_.max_awaited_keys) +
             " keys at once";
    }
    std::size_t new_bytes = node == nullptr ? name.size() + kNameOverheadBytes : 0;
    if (keyspace.room_bytes(large.client) < new_bytes + kAwaitedNameBytes) {
      return "no room for WAIT of '" + std::string(name) + "'";
    }
    keyspace.add_link(*large.wait, node != nullptr ? *node : keyspace.find_or_create(name, hash));
    return std::nullopt;
  }
};

Keyspace::Keyspace(KeyspaceLimits limits, Usage* shared, HashSeed seed)
    : limits_(limits), entries_(seed), shared_(shared) {}

Keyspace::~Keyspace() {
  clear();
}

bool Keyspace::is_large(const Request& request) const {
  auto many = [this](std::size_t count) { return count > limits_.names_at_once; };
  return std::visit(Overloaded{[&](const request::Check& r) { return many(r.keys.size()); },
                               [&](const request::Wait& r) { return many(r.keys.size()); },
                               [&](const request::MultiGet& r) { return many(r.keys.size()); },
                               [&](const request::ListKeys&) { return many(entries_.size()); },
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
  Context turn{client, now, &replies};
  if (!reservations_.empty()) release_all(turn, client, nullptr);
  Usage needed;
  const auto* set = std::get_if<request::MultiSet>(&request);
  if (set != nullptr) {
    if (auto fault = room_for(client, set->pairs, needed)) return fault;
  }
  large_ = std::make_unique<Large>(Large{.client = client,
                                         .request = request,
                                         .pasts = Large::Pasts(0, Large::HashOf{entries_.seed()})});
  promise(static_cast<std::ptrdiff_t>(needed.promised_keys),
          static_cast<std::ptrdiff_t>(needed.promised_bytes));
  if (const auto* wait = std::get_if<request::Wait>(&request)) {
    large_->wait = &add_wait(turn, WaitKind::Names, wait->keys.size());
    large_->wait->keys_left = 1;  // so that it does not end before all names have been looked at
  } else if (std::holds_alternative<request::ListKeys>(request)) {
    turn.reply(reply::Number{static_cast<std::int64_t>(key_count())});
  }
  return std::nullopt;
}

Keyspace::Progress Keyspace::proceed(std::size_t effort, MonoTime now, Replies& replies) {
  check(large_ != nullptr, "there is no large request to go on with");
  Context turn{large_->client, now, &replies};
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
  if (lists && (!large_->next_hash || entries_.hash(node.name()) < *large_->next_hash)) return;
  large_->pasts.try_emplace(std::string(node.name()), Large::Past{node.entry.value, exists(&node)});
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
  large_.reset();
}

}  // namespace ddprun::store
