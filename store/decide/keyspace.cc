// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/keyspace.h"

#include <algorithm>
#include <utility>

#include "store/base/error.h"
#include "store/base/number.h"

namespace ddprun::store {
namespace {

// What a reply of many values sets aside at one time, at most.
constexpr std::size_t kMostReserved = 256 * 1024;

constexpr std::int64_t kLongestTakeMs = std::int64_t{1000} * 3600 * 24 * 365;

// Reads a counter as torch does, by stoll: blanks in front, a sign, and junk behind are accepted.
std::optional<std::int64_t> parse_counter(std::string_view text) {
  std::size_t start = text.find_first_not_of(" \t\n\v\f\r");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return leading_number<std::int64_t>(text);
}

}  // namespace

// The operations.  Each answers why the client must be disconnected, if it must be.
struct Keyspace::Execution {
  using Fault = std::optional<std::string>;

  Keyspace& keyspace;
  const Context& turn;

  Fault operator()(const request::Validate&) { return std::nullopt; }  // the decoder's business

  Fault operator()(const request::Set& r) {
    if (!keyspace.has_room_for(turn.client, r.key, r.value.size())) return no_room("SET", r.key);
    set(r.key, r.value);
    return std::nullopt;
  }

  Fault operator()(const request::CompareSet& r) {
    Node* node = keyspace.find(r.key);
    bool is_present = node != nullptr && node->entry.value;
    bool may_store = is_present ? node->entry.value.view() == r.expected : r.expected.empty();
    if (!may_store) {
      // torch echoes what was expected where the key is missing, and its tests insist.
      turn.reply(reply::Bytes{is_present ? node->entry.value : Value(r.expected)});
      return std::nullopt;
    }
    if (!keyspace.has_room_for(turn.client, r.key, r.desired.size()))
      return no_room("COMPARE_SET", r.key);
    turn.reply(reply::Bytes{set(r.key, r.desired).entry.value});
    return std::nullopt;
  }

  Fault operator()(const request::Get& r) {
    turn.reply(reply::Bytes{get(r.key)});
    return std::nullopt;
  }

  Fault operator()(const request::Add& r) {
    Result<std::int64_t> sum = added("ADD", r.key, r.delta);
    if (!sum) return to_string(sum.error());
    Node& node = keyspace.find_or_create(r.key);
    keyspace.store(node, std::to_string(*sum));
    keyspace.wake_all(turn,
                      node);  // before the reply, as in torch, should the client be among them
    turn.reply(reply::Number{*sum});
    return std::nullopt;
  }

  Fault operator()(const request::Check& r) {
    std::size_t stop = walk(r.keys, [&](std::string_view key, Hash hash) {
      return exists(keyspace.entries_.find(key, hash));
    });
    turn.reply(reply::Byte{stop == r.keys.size() ? kReady : kNotReady});
    return std::nullopt;
  }

  Fault operator()(const request::Wait& r) {
    if (r.keys.size() == 1) return wait_for_one(r.keys.front());
    std::vector<std::string_view> missing;
    walk(r.keys, [&](std::string_view key, Hash hash) {
      if (!exists(keyspace.entries_.find(key, hash))) missing.push_back(key);
      return true;
    });
    return wait_for(missing, WaitKind::Names);
  }

  Fault operator()(const request::GetNumKeys&) {
    turn.reply(reply::Number{static_cast<std::int64_t>(keyspace.key_count())});
    return std::nullopt;
  }

  Fault operator()(const request::DeleteKey& r) {
    Node* node = keyspace.find(r.key);
    bool is_present = node != nullptr && node->entry.value;
    if (is_present) {
      keyspace.clear(*node);
      keyspace.drop_if_unused(*node);
    }
    turn.reply(reply::Number{is_present ? 1 : 0});
    return std::nullopt;
  }

  Fault operator()(const request::Append& r) {
    Node* found = keyspace.find(r.key);
    std::size_t old_size = found != nullptr ? found->entry.value.size() : 0;
    if (!keyspace.has_room_for(turn.client, r.key, old_size + r.value.size()))
      return no_room("APPEND", r.key);
    Node& node = keyspace.find_or_create(r.key);
    keyspace.append(node, r.value);
    keyspace.wake_all(turn, node);
    return std::nullopt;
  }

  Fault operator()(const request::MultiGet& r) {
    const Value nothing;  // no copies: they would count references up and down
    Gathering gathering(turn, r.keys.size());
    walk(r.keys, [&](std::string_view key, Hash hash) {
      const Node* node = keyspace.entries_.find(key, hash);
      gathering.add(node != nullptr ? node->entry.value : nothing);
      return true;
    });
    gathering.finish();
    return std::nullopt;
  }

  // All or nothing: the decoder has the whole of it, and there is room for the whole of it.
  Fault operator()(const request::MultiSet& r) {
    Usage needed;
    if (Fault fault = keyspace.room_for(turn.client, r.pairs, needed)) return fault;
    auto key_of = [&](std::size_t i) { return r.pairs[i].key; };
    keyspace.entries_.walk(0, r.pairs.size(), key_of, [&](std::size_t i, Hash hash) {
      Node& node = keyspace.find_or_create(r.pairs[i].key, hash);
      keyspace.store(node, r.pairs[i].value);
      keyspace.wake_all(turn, node);
      return true;
    });
    return std::nullopt;
  }

  Fault operator()(const request::CancelWait&) {
    keyspace.cancel_waits(turn.client);
    turn.reply(reply::Byte{kWaitCancelled});
    return std::nullopt;
  }

  Fault operator()(const request::Ping& r) {
    turn.reply(reply::Nonce{r.nonce});
    return std::nullopt;
  }

  Fault operator()(const request::QueuePush& r) {
    Node* found = keyspace.find(r.queue);
    Queue* old = found != nullptr ? found->entry.queue.get() : nullptr;
    bool is_full = old != nullptr && old->items.size() >= keyspace.limits_.max_queue_items;
    if (is_full && turn.client < kFirstOwnClient) {
      return "a push to a queue of " + std::to_string(old->items.size()) + " items";
    }
    std::size_t new_bytes = will_bytes(r.queue, r.value.size());
    if (old != nullptr) new_bytes -= kQueueOverheadBytes;
    if (keyspace.room_bytes(turn.client) < new_bytes) return no_room("QUEUE_PUSH", r.queue);
    keyspace.push(turn, r.queue, Value(r.value));
    return std::nullopt;
  }

  Fault operator()(const request::QueuePop& r) {
    Node* node = keyspace.find(r.queue);
    Queue* queue = node != nullptr ? node->entry.queue.get() : nullptr;
    if (queue != nullptr) keyspace.take_reservation(turn.client, *node);
    if (queue == nullptr || queue->items.size() == queue->reserved_count) {
      turn.reply(reply::Number{0});
      return std::nullopt;
    }
    keyspace.pop(turn, *node);
    keyspace.drop_if_unused(*node);
    return std::nullopt;
  }

  Fault operator()(const request::QueueLen& r) {
    Node* node = keyspace.find(r.queue);
    Queue* queue = node != nullptr ? node->entry.queue.get() : nullptr;
    turn.reply(
        reply::Number{queue != nullptr ? static_cast<std::int64_t>(queue->items.size()) : 0});
    return std::nullopt;
  }

  Fault operator()(const request::ListKeys&) {
    turn.replies->reserve(turn.replies->size() + keyspace.key_count() + 1);
    turn.reply(reply::Number{static_cast<std::int64_t>(keyspace.key_count())});
    keyspace.entries_.for_each([&](const Node& node) {
      if (node.entry.value) turn.reply(reply::Bytes{Value(node.name())});
    });
    return std::nullopt;
  }

  Fault operator()(const request::Barrier& r) {
    Result<std::int64_t> count = added("BARRIER", r.key, 1);
    if (!count) return to_string(count.error());
    bool is_complete = *count >= r.world_size;
    if (!is_complete && keyspace.room_bytes(turn.client) < kWaitOverheadBytes + kAwaitedNameBytes) {
      return no_room("BARRIER", r.key);
    }
    Node& node = keyspace.find_or_create(r.key);
    if (!is_complete) {
      if (Fault fault = keyspace.start_wait(turn, {&node}, WaitKind::Names)) {
        keyspace.drop_if_unused(node);
        return fault;
      }
    }
    keyspace.store(node, std::to_string(*count));
    if (is_complete) {
      turn.reply(reply::Byte{kStopWaiting});
      keyspace.wake_all(turn, node);
    }
    return std::nullopt;
  }

  Fault operator()(const request::Probe&) {
    turn.reply(reply::Nonce{kHasLastWill | kHasQueueTake | kHasNamespaces | kHasExpect});
    return std::nullopt;
  }

  Fault operator()(const request::LastWill& r) {
    std::size_t new_bytes = will_bytes(r.queue, r.item.size());
    if (keyspace.room_bytes(turn.client) < new_bytes) return no_room("LAST_WILL", r.queue);
    keyspace.set_last_will(turn.client, LastWill{std::string(r.queue), Value(r.item)});
    turn.reply(reply::Byte{kReady});
    return std::nullopt;
  }

  Fault operator()(const request::ClearLastWill&) {
    keyspace.set_last_will(turn.client, std::nullopt);
    turn.reply(reply::Byte{kReady});
    return std::nullopt;
  }

  Fault operator()(const request::EnterNamespace&) {
    return std::nullopt;
  }  // store/decide/namespaces.h's business

  Fault operator()(const request::Expect&) {  // store/decide/expected_clients.h's business
    turn.reply(reply::Byte{kReady});
    return std::nullopt;
  }

  Fault operator()(const request::QueueTake& r) {
    Node* node = keyspace.find(r.queue);
    Queue* queue = node != nullptr ? node->entry.queue.get() : nullptr;
    if (queue != nullptr && queue->items.size() > queue->reserved_count) {
      keyspace.pop(turn, *node);
      keyspace.drop_if_unused(*node);
      return std::nullopt;
    }
    if (r.timeout_ms > 0) return take_later(r);
    turn.reply(reply::Number{0});
    return std::nullopt;
  }

 private:
  static Fault no_room(const char* operation, std::string_view name) {
    return std::string("no room for ") + operation + " of '" + std::string(name) + "'";
  }

  // Calls visit(key, hash) for each until that answers false, and answers how many it was called
  // for.
  template <class Visit>
  std::size_t walk(std::span<const std::string_view> keys, Visit visit) {
    auto key_of = [&](std::size_t i) { return keys[i]; };
    return keyspace.entries_.walk(0, keys.size(), key_of,
                                  [&](std::size_t i, Hash hash) { return visit(keys[i], hash); });
  }

  Value get(std::string_view key) {
    Node* node = keyspace.find(key);
    return node != nullptr ? node->entry.value : Value();
  }

  Node& set(std::string_view key, std::string_view value) {
    Node& node = keyspace.find_or_create(key);
    keyspace.store(node, value);
    keyspace.wake_all(turn, node);
    return node;
  }

  // The counter at `key` plus `delta`; nothing is changed yet.
  Result<std::int64_t> added(const char* operation, std::string_view key, std::int64_t delta) {
    Node* node = keyspace.find(key);
    std::optional<std::int64_t> old = 0;
    if (node != nullptr && node->entry.value) old = parse_counter(node->entry.value.view());
    std::int64_t sum = 0;
    if (!old || __builtin_add_overflow(*old, delta, &sum)) {
      return Error{Errc::Protocol, std::string(operation) + " to '" + std::string(key) +
                                       "', which holds " + (old ? "too large a" : "no") +
                                       " number"};
    }
    constexpr std::size_t kMaxDigits = 20;
    if (!keyspace.has_room_for(turn.client, key, kMaxDigits)) {
      return Error{Errc::LimitExceeded, *no_room(operation, key)};
    }
    return sum;
  }

  // A blocking pop waits like this, so an item is set aside for it when there is one.
  Fault wait_for_one(std::string_view key) {
    Node* node = keyspace.find(key);
    Queue* queue = node != nullptr ? node->entry.queue.get() : nullptr;
    bool has_item = queue != nullptr && queue->items.size() > queue->reserved_count;
    if (has_item) keyspace.reserve(turn, turn.client, *node);
    if (has_item || (node != nullptr && node->entry.value)) {
      turn.reply(reply::Byte{kStopWaiting});
      return std::nullopt;
    }
    return wait_for({key}, WaitKind::One);
  }

  Fault take_later(const request::QueueTake& r) {
    if (Fault fault = wait_for({r.queue}, WaitKind::Take)) return fault;
    Wait& wait = keyspace.clients_.find(turn.client)->second.waits.back();
    auto timeout = std::chrono::milliseconds(std::min(r.timeout_ms, kLongestTakeMs));
    wait.deadline = keyspace.deadlines_.emplace(turn.now + timeout, &wait);
    return std::nullopt;
  }

  Fault wait_for(const std::vector<std::string_view>& missing, WaitKind kind) {
    if (missing.empty()) {
      turn.reply(reply::Byte{kStopWaiting});
      return std::nullopt;
    }
    std::size_t new_bytes = kWaitOverheadBytes;
    for (std::string_view key : missing) {
      new_bytes += key.size() + kNameOverheadBytes + kAwaitedNameBytes;
    }
    if (keyspace.room_bytes(turn.client) < new_bytes) return no_room("WAIT", missing.front());
    std::vector<Node*> nodes;
    nodes.reserve(missing.size());
    for (std::string_view key : missing) nodes.push_back(&keyspace.find_or_create(key));
    Fault fault = keyspace.start_wait(turn, nodes, kind);
    if (fault) {
      for (std::string_view key : missing) {
        if (Node* node = keyspace.find(key)) keyspace.drop_if_unused(*node);
      }
    }
    return fault;
  }
};

void Keyspace::Gathering::add(const Value& value) {
  std::string_view framed = value.framed();
  if (framed.size() > kCopiedBytes) {
    finish();
    turn_.reply(reply::Bytes{value});
  } else {
    if (run_.capacity() - run_.size() < framed.size()) {  // the others may be about as large
      run_.reserve(run_.size() +
                   std::min(std::max<std::size_t>(values_left_, 1) * framed.size(), kMostReserved));
    }
    run_.append(framed);
  }
  if (values_left_ > 0) --values_left_;
}

void Keyspace::Gathering::finish() {
  if (!run_.empty()) turn_.reply(reply::Run{std::exchange(run_, {})});
}

void Keyspace::clear() {
  end_large();
  discount(usage_.bytes, usage_.keys);
  deadlines_.clear();
  reservations_.clear();
  ended_.clear();
  clients_ = decltype(clients_)();
  entries_.clear();
  wait_count_ = 0;
}

std::optional<std::string> Keyspace::execute(ClientId client, const Request& request, MonoTime now,
                                             Replies& replies) {
  Context turn{client, now, &replies};
  std::size_t before = replies.size();
  if (!reservations_.empty()) {
    const auto* pop = std::get_if<request::QueuePop>(&request);
    release_all(turn, client, pop != nullptr ? find(pop->queue) : nullptr);
  }
  auto fault = std::visit(Execution{*this, turn}, request);
  if (large_) hold_back(replies, before);
  return fault;
}

Value Keyspace::peek(std::string_view key) const {
  const Node* found = entries_.find(key);
  return found != nullptr ? found->entry.value : Value();
}

bool Keyspace::exists(const Node* node) {
  return node != nullptr && (node->entry.value || node->entry.queue);
}

Keyspace::Node* Keyspace::find(std::string_view name) {
  return entries_.find(name);
}

Keyspace::Node& Keyspace::find_or_create(std::string_view name, Hash hash) {
  if (Node* node = entries_.find(name, hash)) return *node;
  account(name.size() + kNameOverheadBytes);
  return entries_.add(name, hash);
}

void Keyspace::drop_if_unused(Node& node) {
  const Entry& entry = node.entry;
  if (entry.value || entry.queue || entry.waiters) return;
  discount(node.name().size() + kNameOverheadBytes);
  entries_.erase(node);
}

void Keyspace::store(Node& node, std::string_view bytes) {
  remember(node);
  Value& held = node.entry.value;
  std::string_view old = held.view();
  if (!held || old.size() != bytes.size()) {
    if (held) discount(old.size() + kValueOverheadBytes, 1);
    account(bytes.size() + kValueOverheadBytes, 1);
  }
  held.assign(bytes);
}

void Keyspace::clear(Node& node) {
  remember(node);
  Value& held = node.entry.value;
  if (held) discount(held.size() + kValueOverheadBytes, 1);
  held = Value();
}

void Keyspace::append(Node& node, std::string_view piece) {
  Value& held = node.entry.value;
  if (!held) return store(node, piece);
  remember(node);
  held.append(piece);
  account(piece.size());
}

}  // namespace ddprun::store
