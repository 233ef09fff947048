// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/entries.h"

#include <utility>

#include "store/decide/snapshot.h"

namespace ddprun::store {

Value Entries::value_of(std::string_view name) const {
  const Node* node = find(name);
  return node != nullptr ? node->entry.value : Value();
}

Node& Entries::find_or_create(std::string_view name, Hash hash) {
  if (Node* node = table_.find(name, hash)) return *node;
  budget_.add(name.size() + cost::kName);
  return table_.add(name, hash);
}

void Entries::drop_if_unused(Node& node) {
  if (node.entry.exists() || node.entry.waiters) return;
  budget_.remove(node.name().size() + cost::kName);
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
  }
  held.assign(bytes);
}

void Entries::unset(Node& node) {
  before_change(node);
  Value& held = node.entry.value;
  if (held) budget_.remove(held.size() + cost::kValue, 1);
  held = Value();
}

void Entries::append(Node& node, std::string_view piece) {
  Value& held = node.entry.value;
  if (!held) return set(node, piece);
  before_change(node);
  held.append(piece);
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

void Entries::before_change(const Node& node) {
  if (snapshot_ != nullptr) snapshot_->save(node, table_);
}

}  // namespace ddprun::store
