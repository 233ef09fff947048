// SPDX-License-Identifier: BSD-3-Clause
//
// What a name of a keyspace stands for: a key, a queue, or both; or neither, while a client waits
// for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "store/decide/name_table.h"
#include "store/decide/value.h"

namespace ddprun::store {

struct Wait;

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

}  // namespace ddprun::store
