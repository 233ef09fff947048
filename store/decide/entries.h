// SPDX-License-Identifier: BSD-3-Clause
//
// What each name of a keyspace stands for: a key, a queue, or both; or neither, while a client
// waits for it.  Every change is counted in the budget, and first saved in the snapshot of the
// large request in progress, if there is one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "store/decide/budget.h"
#include "store/decide/name_table.h"
#include "store/decide/value.h"

namespace ddprun::store {

struct Wait;
struct Waking;

// The waits for a name, first come first served.  One run of memory, because thousands of ranks may
// each wait for the names of all of them.
struct Waiters {
  struct Item {
    Wait* wait;          // null if it has left
    std::uint32_t link;  // index into the wait's links
  };
  std::vector<Item> items;
  std::size_t first = 0;  // the items before it have left
  std::size_t count = 0;  // the items that have not left

  // While they are told step by step that a key has been stored: those from `wake_next` to before
  // `wake_end` are still to be told.  Takes stay among those before.
  Waking* waking = nullptr;
  std::size_t wake_next = 0;
  std::size_t wake_end = 0;
};

struct Queue {
  std::deque<Value> items;
  std::size_t reserved_count = 0;  // items set aside; at most all items

  bool has_free_item() const { return items.size() > reserved_count; }
};

struct Entry {
  Value value;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Waiters> waiters;  // null if there are none

  // Whether CHECK and WAIT take the name to exist.
  bool exists() const { return value || queue; }
  bool has_free_item() const { return queue && queue->has_free_item(); }
};

using Node = NameTable<Entry>::Node;
using Hash = NameTable<Entry>::Hash;

inline bool exists(const Node* node) {
  return node != nullptr && node->entry.exists();
}

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
  // As append(), where `room` is a copy of what the key holds with room for the piece.
  void append_to(Node& node, Value room, std::string_view piece);

  void push(Node& node, Value item);
  // The oldest item of the queue, which must have one.
  Value pop(Node& node);

  // Saves each name in `snapshot` before it changes; null ends that.
  void save_changes_in(Snapshot* snapshot) { snapshot_ = snapshot; }

  // The bytes of all names, of keys and others.
  std::size_t name_bytes() const { return name_bytes_; }

  // What it costs to free the value of this key, by a request that deletes or replaces it; nothing
  // is looked up where no value is large.
  std::size_t effort_to_free(std::string_view name) const;
  std::size_t effort_to_free(const Node& node) const;

  void clear() { table_.clear(), name_bytes_ = large_values_ = 0; }
  // Frees what is here as far as the effort goes, which it diminishes, and without counting it in
  // the budget.  Answers whether that was all; if not, nothing else may be asked for any more.
  bool free_some(std::size_t& effort);

 private:
  void before_change(const Node& node);
  void note_size(std::size_t old_bytes, std::size_t new_bytes);

  NameTable<Entry> table_;
  Budget& budget_;
  Snapshot* snapshot_ = nullptr;
  std::size_t name_bytes_ = 0;
  std::size_t large_values_ = 0;
};

}  // namespace ddprun::store
