// SPDX-License-Identifier: BSD-3-Clause
//
// The table of names: what is kept for each, found by its bytes.  It differs from a library's table
// in three ways that the store needs.  No insertion costs more than a few microseconds, however
// large the table is, because it grows by a small segment at a time; it can be listed piece by
// piece while it changes; and a caller with many names can have the memory for all of them fetched
// ahead.
//
// It is extendible hashing (Fagin and others, 1979): the first bits of a name's hash choose a
// segment through a directory, and a segment that is full is split in two by one bit more.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "store/decide/hash.h"

namespace ddprun::store {

// Names with an Entry for each.  A node stays where it is until it is erased.
//
// Threads: not safe for concurrent use.
template <class Entry>
class NameTable {
 public:
  using Hash = std::uint64_t;

  // A name and its entry; the bytes of the name follow in the same allocation.
  class Node {
   public:
    Entry entry;

    std::string_view name() const {
      return {reinterpret_cast<const char*>(this) + kNameOffset, size_};
    }

   private:
    friend class NameTable;
    // The name begins where the members end, be it in the padding.
    static constexpr std::size_t kNameOffset = sizeof(Entry) + sizeof(std::uint32_t);

    std::uint32_t size_ = 0;
  };

  explicit NameTable(HashSeed seed) : seed_(seed) {}
  ~NameTable() { clear(); }

  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  HashSeed seed() const { return seed_; }
  std::size_t size() const { return size_; }

  Hash hash(std::string_view name) const { return sip_hash(seed_, name); }

  Node* find(std::string_view name) const { return find(name, hash(name)); }

  // `hash` is that of `name`.
  Node* find(std::string_view name, Hash hash) const {
    if (size_ == 0) return nullptr;
    const Segment& segment = segment_of(hash);
    for (std::size_t i = hash & segment.mask;; i = (i + 1) & segment.mask) {
      const Slot& slot = segment.slots[i];
      if (slot.node == nullptr) return nullptr;
      if (slot.hash == hash && is_same(slot.node->name(), name)) return slot.node;
    }
  }

  // Calls visit(i, hash of name_of(i)) for each i from `first` on, until `last` or until that
  // answers false, and answers where it stopped.  What find() will need is fetched from memory for
  // several names at a time, which is many times as fast where the table is larger than the caches.
  // `visit` may add and erase.
  template <class NameOf, class Visit>
  std::size_t walk(std::size_t first, std::size_t last, NameOf name_of, Visit visit) const {
    constexpr std::size_t kAhead = 16;
    std::array<Hash, kAhead> hashes;
    while (first < last) {
      std::size_t count = std::min(kAhead, last - first);
      for (std::size_t i = 0; i < count; ++i) fetch_slot(hashes[i] = hash(name_of(first + i)));
      for (std::size_t i = 0; i < count; ++i) fetch_node(hashes[i]);
      for (std::size_t i = 0; i < count; ++i, ++first) {
        if (!visit(first, hashes[i])) return first;
      }
    }
    return last;
  }

  // Adds a name that is not there.
  Node& add(std::string_view name, Hash hash) {
    if (directory_.empty()) directory_.push_back(new Segment(kLeastSlots, 0));
    make_room(hash);
    Node* node = make_node(name);
    segment_of(hash).put({hash, node});
    ++size_;
    return *node;
  }

  // Removes a node, which must be one of this table's.
  void erase(Node& node) {
    Hash hash = this->hash(node.name());
    Segment& segment = segment_of(hash);
    segment.take_out(hash, &node);
    drop_node(&node);
    if (--size_ == 0) return clear();
    if (segment.count == 0) merge(hash);
  }

  void clear() {
    Segment* last = nullptr;
    for (Segment* segment : directory_) {
      if (segment == last) continue;
      last = segment;
      for (std::size_t i = 0; i <= segment->mask; ++i) {
        if (segment->slots[i].node != nullptr) drop_node(segment->slots[i].node);
      }
      delete segment;
    }
    directory_ = {};
    depth_ = 0;
    size_ = 0;
  }

  // Removes one node after the other for which may_drop(Node&) is true, until it is false for one.
  // Answers whether all are removed; if not, only this, clear() and the destructor may be called
  // any more.
  template <class MayDrop>
  bool drop_some(MayDrop may_drop) {
    while (!directory_.empty()) {
      Segment* last = directory_.back();
      for (; last->count > 0; --last->count, --size_) {
        Slot& slot = last->first_taken();
        if (!may_drop(*slot.node)) return false;
        drop_node(std::exchange(slot.node, nullptr));
      }
      while (!directory_.empty() && directory_.back() == last) directory_.pop_back();
      delete last;
    }
    clear();
    return true;
  }

  // Calls visit(Node&) for each.
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::optional<Hash> next = 0; next;) next = visit_some(*next, visit);
  }

  // Calls visit(Node&) for those of one segment whose hashes are `first` or more.  Answers where to
  // go on, if there are more: every name with a smaller hash has been visited, whatever was added
  // or erased meanwhile.
  template <class Visit>
  std::optional<Hash> visit_some(Hash first, Visit visit) const {
    if (size_ == 0) return std::nullopt;
    const Segment& segment = segment_of(first);
    for (std::size_t i = 0; i <= segment.mask; ++i) {
      const Slot& slot = segment.slots[i];
      if (slot.node != nullptr && slot.hash >= first) visit(*slot.node);
    }
    if (segment.depth == 0) return std::nullopt;
    unsigned shift = 64 - segment.depth;
    Hash next = ((first >> shift) + 1) << shift;
    if (next == 0) return std::nullopt;
    return next;
  }

 private:
  // A segment begins with the fewest, and grows to the most before it is split.
  static constexpr std::size_t kLeastSlots = 16;
  static constexpr std::size_t kMostSlots = 512;
  // Names that all fall into one segment do not have the directory doubled for ever: it has at most
  // one entry for so many names.
  static constexpr std::size_t kNamesPerEntry = 64;

  struct Slot {
    Hash hash = 0;
    Node* node = nullptr;  // none in a free slot
  };

  // Slots by the last bits of the hash; a name whose slot is taken has the next free one.
  struct Segment {
    Segment(std::size_t slot_count, unsigned depth_)
        : slots(new Slot[slot_count]), mask(slot_count - 1), depth(depth_) {}

    bool is_full() const { return count > mask / 4 * 3; }

    void put(Slot slot) {
      std::size_t i = slot.hash & mask;
      while (slots[i].node != nullptr) i = (i + 1) & mask;
      slots[i] = slot;
      ++count;
    }

    // Those behind it that would not be found any more move up.
    void take_out(Hash hash, const Node* node) {
      std::size_t hole = hash & mask;
      while (slots[hole].node != node) hole = (hole + 1) & mask;
      for (std::size_t i = (hole + 1) & mask; slots[i].node != nullptr; i = (i + 1) & mask) {
        std::size_t distance = (i - slots[i].hash) & mask;  // from where it would like to be
        if (distance < ((i - hole) & mask)) continue;
        slots[hole] = slots[i];
        hole = i;
      }
      slots[hole] = {};
      --count;
    }

    // There must be one.
    Slot& first_taken() {
      while (slots[next_dropped].node == nullptr) ++next_dropped;
      return slots[next_dropped];
    }

    std::unique_ptr<Slot[]> slots;
    std::size_t mask;
    std::size_t next_dropped = 0;  // of drop_some(): the slots before it are free
    std::size_t count = 0;
    unsigned depth;  // how many first bits all hashes in here have in common
  };

  // Shifting by 64 is not defined, hence by one first.
  std::size_t entry_of(Hash hash) const { return (hash >> 1) >> (63 - depth_); }
  Segment& segment_of(Hash hash) const { return *directory_[entry_of(hash)]; }

  void fetch_slot(Hash hash) const {
    if (size_ == 0) return;
    const Segment& segment = segment_of(hash);
    __builtin_prefetch(&segment.slots[hash & segment.mask]);
  }

  void fetch_node(Hash hash) const {
    if (size_ == 0) return;
    const Segment& segment = segment_of(hash);
    std::size_t i = hash & segment.mask;
    if (segment.slots[i].hash != hash) i = (i + 1) & segment.mask;
    __builtin_prefetch(segment.slots[i].node);
  }

  void make_room(Hash hash) {
    while (segment_of(hash).is_full()) {
      Segment& full = segment_of(hash);
      bool may_split =
          full.mask + 1 >= kMostSlots && full.depth < std::bit_width(size_ / kNamesPerEntry);
      may_split ? split(hash) : grow(full);
    }
  }

  static void grow(Segment& segment) {
    Segment larger(2 * (segment.mask + 1), segment.depth);
    for (std::size_t i = 0; i <= segment.mask; ++i) {
      if (segment.slots[i].node != nullptr) larger.put(segment.slots[i]);
    }
    segment = std::move(larger);
  }

  void split(Hash hash) {
    if (segment_of(hash).depth == depth_) double_directory();
    Segment* old = &segment_of(hash);
    auto low = std::make_unique<Segment>(old->mask + 1, old->depth + 1);
    auto high = std::make_unique<Segment>(old->mask + 1, old->depth + 1);
    for (std::size_t i = 0; i <= old->mask; ++i) {
      const Slot& slot = old->slots[i];
      if (slot.node == nullptr) continue;
      bool is_high = (slot.hash >> (63 - old->depth) & 1) != 0;
      (is_high ? high : low)->put(slot);
    }
    std::size_t width = std::size_t{1} << (depth_ - old->depth);  // entries that are its
    std::size_t begin = entry_of(hash) & ~(width - 1);
    std::fill_n(directory_.begin() + static_cast<std::ptrdiff_t>(begin), width / 2, low.release());
    std::fill_n(directory_.begin() + static_cast<std::ptrdiff_t>(begin + width / 2), width / 2,
                high.release());
    delete old;
  }

  void double_directory() {
    std::vector<Segment*> doubled(2 * directory_.size());
    for (std::size_t i = 0; i < doubled.size(); ++i) doubled[i] = directory_[i / 2];
    directory_ = std::move(doubled);
    ++depth_;
  }

  // The empty segment of `hash` gives way to its other half, if that is not split further.
  void merge(Hash hash) {
    Segment* empty = &segment_of(hash);
    if (empty->depth == 0) return;
    std::size_t width = std::size_t{1} << (depth_ - empty->depth);
    std::size_t begin = entry_of(hash) & ~(width - 1);
    Segment* other = directory_[begin ^ width];
    if (other->depth != empty->depth) return;
    std::fill_n(directory_.begin() + static_cast<std::ptrdiff_t>(begin), width, other);
    --other->depth;
    delete empty;
    if (other->count == 0) merge(hash);
  }

  static Node* make_node(std::string_view name) {
    std::size_t bytes = std::max(sizeof(Node), Node::kNameOffset + name.size());
    Node* node = new (::operator new(bytes)) Node;
    node->size_ = static_cast<std::uint32_t>(name.size());
    if (!name.empty())
      std::memcpy(const_cast<char*>(node->name().data()), name.data(), name.size());
    return node;
  }

  static void drop_node(Node* node) {
    node->~Node();
    ::operator delete(node);
  }

  // As ==, without a call: most names are a few words long.
  static bool is_same(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    if (a.size() < sizeof(std::uint64_t)) return a == b;
    std::size_t last = a.size() - sizeof(std::uint64_t);
    for (std::size_t i = 0; i < last; i += sizeof(std::uint64_t)) {
      if (word_at(a.data() + i) != word_at(b.data() + i)) return false;
    }
    return word_at(a.data() + last) == word_at(b.data() + last);
  }

  HashSeed seed_;
  std::size_t size_ = 0;
  unsigned depth_ = 0;
  std::vector<Segment*> directory_;  // 2^depth_ of them; a segment may be there several times
};

}  // namespace ddprun::store
