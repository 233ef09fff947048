// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/execution.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/error.h"
#include "store/base/number.h"
#include "store/decide/listed.h"
#include "store/decide/values_reply.h"

namespace ddprun::store {
namespace {

constexpr std::int64_t kLongestTakeMs = std::int64_t{1000} * 3600 * 24 * 365;

// Reads a counter as torch does, by stoll: leading blanks, a sign, and trailing junk are accepted.
std::optional<std::int64_t> parse_counter(std::string_view text) {
  std::size_t start = text.find_first_not_of(" \t\n\v\f\r");
  if (start == std::string_view::npos) return std::nullopt;
  text.remove_prefix(start);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return leading_number<std::int64_t>(text);
}

// Each operation answers why the client must be disconnected, if it must be.
struct Operations {
  const Execution& on;
  const Context& context;

  using Fault = std::optional<std::string>;

  // Handled by the decoder.
  Fault operator()(const request::Validate&) { return std::nullopt; }

  Fault operator()(const request::Set& r) {
    if (!on.entries.has_room_for(context.client, r.key, r.value.size()))
      return no_room("SET", r.key);
    set(r.key, r.value);
    return std::nullopt;
  }

  Fault operator()(const request::CompareSet& r) {
    Node* node = on.entries.find(r.key);
    bool is_present = node != nullptr && node->entry.value;
    bool may_store = is_present ? node->entry.value.view() == r.expected : r.expected.empty();
    if (!may_store) {
      // torch echoes what was expected where the key is missing, and its tests insist.
      context.reply(reply::Bytes{is_present ? node->entry.value : Value(r.expected)});
      return std::nullopt;
    }
    if (!on.entries.has_room_for(context.client, r.key, r.desired.size()))
      return no_room("COMPARE_SET", r.key);
    context.reply(reply::Bytes{set(r.key, r.desired).entry.value});
    return std::nullopt;
  }

  Fault operator()(const request::Get& r) {
    context.reply(reply::Bytes{on.entries.value_of(r.key)});
    return std::nullopt;
  }

  Fault operator()(const request::Add& r) {
    Result<std::int64_t> sum = added("ADD", r.key, r.delta);
    if (!sum) return to_string(sum.error());
    Node& node = on.entries.find_or_create(r.key);
    on.entries.set(node, std::to_string(*sum));
    on.waits.wake_all(context,
                      node);  // before the reply, as in torch, should the client be among them
    context.reply(reply::Number{*sum});
    return std::nullopt;
  }

  Fault operator()(const request::Check& r) {
    std::size_t stop = walk(r.keys, [&](std::string_view key, Hash hash) {
      return exists(on.entries.find(key, hash));
    });
    context.reply(reply::Byte{stop == r.keys.size() ? kReady : kNotReady});
    return std::nullopt;
  }

  Fault operator()(const request::Wait& r) {
    if (r.keys.size() == 1) return wait_for_one(r.keys.front());
    std::vector<std::string_view> missing;
    walk(r.keys, [&](std::string_view key, Hash hash) {
      if (!exists(on.entries.find(key, hash))) missing.push_back(key);
      return true;
    });
    return wait_for(missing, WaitKind::Names);
  }

  Fault operator()(const request::GetNumKeys&) {
    context.reply(reply::Number{static_cast<std::int64_t>(on.budget.usage().keys)});
    return std::nullopt;
  }

  Fault operator()(const request::DeleteKey& r) {
    Node* node = on.entries.find(r.key);
    bool is_present = node != nullptr && node->entry.value;
    if (is_present) {
      on.entries.unset(*node);
      on.entries.drop_if_unused(*node);
    }
    context.reply(reply::Number{is_present ? 1 : 0});
    return std::nullopt;
  }

  Fault operator()(const request::Append& r) {
    Node* found = on.entries.find(r.key);
    std::size_t old_size = found != nullptr ? found->entry.value.size() : 0;
    if (!on.entries.has_room_for(context.client, r.key, old_size + r.value.size()))
      return no_room("APPEND", r.key);
    Node& node = on.entries.find_or_create(r.key);
    on.entries.append(node, r.value);
    on.waits.wake_all(context, node);
    return std::nullopt;
  }

  Fault operator()(const request::MultiGet& r) {
    const Value nothing;  // no copies: they would count references up and down
    ValuesReply values(context, r.keys.size());
    walk(r.keys, [&](std::string_view key, Hash hash) {
      const Node* node = on.entries.find(key, hash);
      values.add(node != nullptr ? node->entry.value : nothing);
      return true;
    });
    values.finish();
    return std::nullopt;
  }

  // All or nothing: the decoder has the whole of it, and there is room for the whole of it.
  Fault operator()(const request::MultiSet& r) {
    if (!on.budget.has_room_for(context.client, r.pairs)) return no_room_for_pairs(r.pairs.size());
    auto key_of = [&](std::size_t i) { return r.pairs[i].key; };
    on.entries.table().walk(0, r.pairs.size(), key_of, [&](std::size_t i, Hash hash) {
      Node& node = on.entries.find_or_create(r.pairs[i].key, hash);
      on.entries.set(node, r.pairs[i].value);
      on.waits.wake_all(context, node);
      return true;
    });
    return std::nullopt;
  }

  Fault operator()(const request::CancelWait&) {
    on.waits.cancel_all(context.client);
    context.reply(reply::Byte{kWaitCancelled});
    return std::nullopt;
  }

  Fault operator()(const request::Ping& r) {
    context.reply(reply::Nonce{r.nonce});
    return std::nullopt;
  }

  Fault operator()(const request::QueuePush& r) {
    Node* found = on.entries.find(r.queue);
    Queue* old = found != nullptr ? found->entry.queue.get() : nullptr;
    bool is_full = old != nullptr && old->items.size() >= on.limits.max_queue_items;
    if (is_full && !is_own(context.client)) {
      return "a push to a queue of " + std::to_string(old->items.size()) + " items";
    }
    std::size_t new_bytes = cost::of_queue(r.queue, r.value.size());
    if (old != nullptr) new_bytes -= cost::kQueue;
    if (on.budget.room_bytes(context.client) < new_bytes) return no_room("QUEUE_PUSH", r.queue);
    on.queues.push(context, r.queue, Value(r.value));
    return std::nullopt;
  }

  Fault operator()(const request::QueuePop& r) {
    Node* node = on.entries.find(r.queue);
    Queue* queue = node != nullptr ? node->entry.queue.get() : nullptr;
    if (queue != nullptr) on.queues.take_reservation(context.client, *node);
    if (queue == nullptr || !queue->has_free_item()) {
      context.reply(reply::Number{0});
      return std::nullopt;
    }
    on.queues.pop(context, *node);
    on.entries.drop_if_unused(*node);
    return std::nullopt;
  }

  Fault operator()(const request::QueueLen& r) {
    Node* node = on.entries.find(r.queue);
    Queue* queue = node != nullptr ? node->entry.queue.get() : nullptr;
    context.reply(
        reply::Number{queue != nullptr ? static_cast<std::int64_t>(queue->items.size()) : 0});
    return std::nullopt;
  }

  Fault operator()(const request::ListKeys&) {
    context.replies->reserve(context.replies->size() + on.budget.usage().keys + 1);
    context.reply(reply::Number{static_cast<std::int64_t>(on.budget.usage().keys)});
    on.entries.table().for_each([&](const Node& node) {
      if (node.entry.value) context.reply(listed(node.name()));
    });
    return std::nullopt;
  }

  Fault operator()(const request::Barrier& r) {
    Result<std::int64_t> count = added("BARRIER", r.key, 1);
    if (!count) return to_string(count.error());
    bool is_complete = *count >= r.world_size;
    if (!is_complete && on.budget.room_bytes(context.client) < cost::kWait + cost::kAwaitedName) {
      return no_room("BARRIER", r.key);
    }
    Node& node = on.entries.find_or_create(r.key);
    if (!is_complete) {
      if (Fault fault = on.waits.start(context, {&node}, WaitKind::Names)) {
        on.entries.drop_if_unused(node);
        return fault;
      }
    }
    on.entries.set(node, std::to_string(*count));
    if (is_complete) {
      context.reply(reply::Byte{kStopWaiting});
      on.waits.wake_all(context, node);
    }
    return std::nullopt;
  }

  Fault operator()(const request::Probe&) {
    context.reply(reply::Nonce{kHasLastWill | kHasQueueTake | kHasNamespaces | kHasExpect |
                               kHasAuthentication});
    return std::nullopt;
  }

  Fault operator()(const request::LastWill& r) {
    std::size_t new_bytes = cost::of_queue(r.queue, r.item.size());
    if (on.budget.room_bytes(context.client) < new_bytes) return no_room("LAST_WILL", r.queue);
    on.last_wills.set(context.client, LastWill{std::string(r.queue), Value(r.item)});
    context.reply(reply::Byte{kReady});
    return std::nullopt;
  }

  Fault operator()(const request::ClearLastWill&) {
    on.last_wills.clear(context.client);
    context.reply(reply::Byte{kReady});
    return std::nullopt;
  }

  // Handled in store/decide/namespaces.h.
  Fault operator()(const request::EnterNamespace&) { return std::nullopt; }

  // The server keeps the announcement in store/decide/expected_clients.h.
  Fault operator()(const request::Expect&) {
    context.reply(reply::Byte{kReady});
    return std::nullopt;
  }

  // The server answers these itself (store/server_security.cc).
  Fault operator()(const request::Authenticate&) { return "AUTHENTICATE has no meaning here"; }
  Fault operator()(const request::Prove&) { return "PROVE has no meaning here"; }

  Fault operator()(const request::QueueTake& r) {
    Node* node = on.entries.find(r.queue);
    Queue* queue = node != nullptr ? node->entry.queue.get() : nullptr;
    if (queue != nullptr && queue->has_free_item()) {
      on.queues.pop(context, *node);
      on.entries.drop_if_unused(*node);
      return std::nullopt;
    }
    if (r.timeout_ms > 0) return take_later(r);
    context.reply(reply::Number{0});
    return std::nullopt;
  }

 private:
  // Calls visit(key, hash) for each until that answers false, and answers how many it was called
  // for.
  template <class Visit>
  std::size_t walk(std::span<const std::string_view> keys, Visit visit) {
    auto key_of = [&](std::size_t i) { return keys[i]; };
    return on.entries.table().walk(0, keys.size(), key_of,
                                   [&](std::size_t i, Hash hash) { return visit(keys[i], hash); });
  }

  Node& set(std::string_view key, std::string_view value) {
    Node& node = on.entries.find_or_create(key);
    on.entries.set(node, value);
    on.waits.wake_all(context, node);
    return node;
  }

  // The counter at `key` plus `delta`; nothing is changed yet.
  Result<std::int64_t> added(const char* operation, std::string_view key, std::int64_t delta) {
    Node* node = on.entries.find(key);
    std::optional<std::int64_t> old = 0;
    if (node != nullptr && node->entry.value) old = parse_counter(node->entry.value.view());
    std::int64_t sum = 0;
    if (!old || __builtin_add_overflow(*old, delta, &sum)) {
      return Error{Errc::Protocol, std::string(operation) + " to '" + shown(key) +
                                       "', which holds " + (old ? "too large a" : "no") +
                                       " number"};
    }
    constexpr std::size_t kMaxDigits = 20;
    if (!on.entries.has_room_for(context.client, key, kMaxDigits)) {
      return Error{Errc::LimitExceeded, no_room(operation, key)};
    }
    return sum;
  }

  // A blocking pop waits like this, so an item is set aside for it when there is one.
  Fault wait_for_one(std::string_view key) {
    Node* node = on.entries.find(key);
    Queue* queue = node != nullptr ? node->entry.queue.get() : nullptr;
    bool has_item = queue != nullptr && queue->has_free_item();
    if (has_item) on.queues.reserve(context, context.client, *node);
    if (has_item || (node != nullptr && node->entry.value)) {
      context.reply(reply::Byte{kStopWaiting});
      return std::nullopt;
    }
    return wait_for({key}, WaitKind::One);
  }

  Fault take_later(const request::QueueTake& r) {
    if (Fault fault = wait_for({r.queue}, WaitKind::Take)) return fault;
    auto timeout = std::chrono::milliseconds(std::min(r.timeout_ms, kLongestTakeMs));
    on.waits.set_deadline(context.client, context.now + timeout);
    return std::nullopt;
  }

  Fault wait_for(const std::vector<std::string_view>& missing, WaitKind kind) {
    if (missing.empty()) {
      context.reply(reply::Byte{kStopWaiting});
      return std::nullopt;
    }
    std::size_t new_bytes = cost::kWait;
    for (std::string_view key : missing) {
      new_bytes += key.size() + cost::kName + cost::kAwaitedName;
    }
    if (on.budget.room_bytes(context.client) < new_bytes) return no_room("WAIT", missing.front());
    std::vector<Node*> nodes;
    nodes.reserve(missing.size());
    for (std::string_view key : missing) nodes.push_back(&on.entries.find_or_create(key));
    Fault fault = on.waits.start(context, nodes, kind);
    if (fault) {
      for (std::string_view key : missing) {
        if (Node* node = on.entries.find(key)) on.entries.drop_if_unused(*node);
      }
    }
    return fault;
  }
};

}  // namespace

std::optional<std::string> execute(const Request& request, const Execution& on,
                                   const Context& context) {
  return std::visit(Operations{on, context}, request);
}

}  // namespace ddprun::store
