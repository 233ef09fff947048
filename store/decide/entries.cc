// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/entries.h"

#include <algorithm>
#include <utility>

#include "store/decide/effort.h"
#include "store/decide/snapshot.h"

namespace ddprun::store {
namespace {

// The system takes back the memory of a value that has so much, page by page.
constexpr std::size_t kLargeBytes = 256 * 1024;

}  // namespace

Value Entries::value_of(std::string_view name) const {
  const Node* node = find(name);
  return node != nullptr ? node->entry.value : Value();
}

Node& Entries::find_or_create(std::string_view name, Hash hash) {
  if (Node* node = table_.find(name, hash)) return *node;
  budget_.add(name.size() + cost::kName);
  name_bytes_ += name.size();
  return table_.add(name, hash);
}

void Entries::drop_if_unused(Node& node) {
  if (node.entry.exists() || node.entry.waiters) return;
  budget_.remove(node.name().size() + cost::kName);
  name_bytes_ -= node.name().size();
  table_.erase(node);
}

bool Entries::has_room_for(ClientId client, std::string_view name, std::size_t value_bytes) const {
  std::size_t new_bytes = name.size() + cost::kName + value_bytes + cost::kValue;
  if (new_bytes <= budget_.room_bytes(client) && budget_.room_keys(client) > 0) return true;
  const Node* node = find(name);
  bool is_present = node != nullptr && node->entry.value;
  if (!is_present) return false;
  return value_bytes <= budget_.room_bytes(client) + node->entry.value.size();
}

void Entries::set(Node& node, std::string_view bytes) {
  before_change(node);
  Value& held = node.entry.value;
  std::string_view old = held.view();
  if (!held || old.size() != bytes.size()) {
    if (held) budget_.remove(old.size() + cost::kValue, 1);
    budget_.add(bytes.size() + cost::kValue, 1);
    note_size(old.size(), bytes.size());
  }
  held.assign(bytes);
}

void Entries::unset(Node& node) {
  before_change(node);
  Value& held = node.entry.value;
  if (held) budget_.remove(held.size() + cost::kValue, 1);
  note_size(held.size(), 0);
  held = Value();
}

void Entries::append(Node& node, std::string_view piece) {
  Value& held = node.entry.value;
  if (!held) return set(node, piece);
  before_change(node);
  note_size(held.size(), held.size() + piece.size());
  held.append(piece);
  budget_.add(piece.size());
}

void Entries::append_to(Node& node, Value room, std::string_view piece) {
  before_change(node);
  room.append(piece);
  note_size(node.entry.value.size(), room.size());
  node.entry.value = std::move(room);
  budget_.add(piece.size());
}

void Entries::push(Node& node, Value item) {
  std::unique_ptr<Queue>& queue = node.entry.queue;
  if (!queue) {
    before_change(node);
    queue = std::make_unique<Queue>();
    budget_.add(cost::kQueue);
  }
  budget_.add(item.size() + cost::kValue);
  queue->items.push_back(std::move(item));
}

Value Entries::pop(Node& node) {
  std::unique_ptr<Queue>& queue = node.entry.queue;
  Value item = std::move(queue->items.front());
  budget_.remove(item.size() + cost::kValue);
  queue->items.pop_front();
  if (queue->items.empty()) {
    before_change(node);
    queue.reset();
    budget_.remove(cost::kQueue);
  }
  return item;
}

std::size_t Entries::effort_to_free(std::string_view name) const {
  if (large_values_ == 0) return 0;
  const Node* node = find(name);
  return node != nullptr ? effort_to_free(*node) : 0;
}

std::size_t Entries::effort_to_free(const Node& node) const {
  std::size_t bytes = node.entry.value.size();
  return bytes >= kLargeBytes ? bytes / effort::kBytes : 0;
}

bool Entries::free_some(std::size_t& effort) {
  return table_.drop_some([&effort](Node& node) {
    auto pay = [&effort](const Value& value) {
      effort -= std::min(effort, 1 + value.size() / effort::kBytes);
    };
    if (Queue* queue = node.entry.queue.get()) {
      for (; effort > 0 && !queue->items.empty(); queue->items.pop_front()) {
        pay(queue->items.front());
      }
    }
    if (effort == 0) return false;
    pay(node.entry.value);
    return true;
  });
}

void Entries::note_size(std::size_t old_bytes, std::size_t new_bytes) {
  if (old_bytes >= kLargeBytes) --large_values_;
  if (new_bytes >= kLargeBytes) ++large_values_;
}

void Entries::before_change(const Node& node) {
  if (snapshot_ != nullptr) snapshot_->save(node, table_);
}

}  // namespace ddprun::store
