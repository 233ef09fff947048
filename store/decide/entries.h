// SPDX-License-Identifier: BSD-3-Clause
//
// The names of a keyspace, and every change of what one stands for.  Each is counted in the budget,
// and first saved in the snapshot of the large request in progress, if there is one.
#pragma once

#include <string_view>

#include "store/decide/budget.h"
#include "store/decide/entry.h"
#include "store/decide/name_table.h"
#include "store/decide/value.h"

namespace ddprun::store {

class Snapshot;

// Threads: not safe for concurrent use.  Lifetime: `budget` must outlive it.
class Entries {
 public:
  Entries(HashSeed seed, Budget& budget) : table_(seed), budget_(budget) {}

  const NameTable<Entry>& table() const { return table_; }

  Node* find(std::string_view name) const { return table_.find(name); }
  Node* find(std::string_view name, Hash hash) const { return table_.find(name, hash); }
  Value value_of(std::string_view name) const;
  Node& find_or_create(std::string_view name) { return find_or_create(name, table_.hash(name)); }
  Node& find_or_create(std::string_view name, Hash hash);
  // Erases the node if it stands for nothing and no client waits for it.
  void drop_if_unused(Node& node);

  // Whether `client` may give the key `name` a value of so many bytes, in place of the one that it
  // may hold now.
  bool has_room_for(ClientId client, std::string_view name, std::size_t value_bytes) const;

  void set(Node& node, std::string_view bytes);
  void unset(Node& node);
  void append(Node& node, std::string_view piece);

  void push(Node& node, Value item);
  // The oldest item of the queue, which must have one.
  Value pop(Node& node);

  // Saves each name in `snapshot` before it changes; null ends that.
  void save_changes_in(Snapshot* snapshot) { snapshot_ = snapshot; }

  void clear() { table_.clear(); }

 private:
  void before_change(const Node& node);

  NameTable<Entry> table_;
  Budget& budget_;
  Snapshot* snapshot_ = nullptr;
};

}  // namespace ddprun::store
