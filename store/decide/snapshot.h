// SPDX-License-Identifier: BSD-3-Clause
//
// What names held at one moment, while they change.  Only the names that have changed since are
// kept; for all others the table is right.
#pragma once

#include <boost/unordered/unordered_map.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "store/decide/entry.h"
#include "store/decide/hash.h"
#include "store/decide/value.h"

namespace ddprun::store {

class Snapshot {
 public:
  struct Saved {
    Value value;
    bool existed;
  };

 private:
  struct HashOf {
    using is_transparent = void;
    HashSeed seed;
    std::size_t operator()(std::string_view name) const { return sip_hash(seed, name); }
  };
  using Names = boost::unordered_map<std::string, Saved, HashOf, std::equal_to<>>;

 public:
  explicit Snapshot(HashSeed seed) : names_(0, HashOf{seed}) {}

  // Saves what the node holds, if that has not been done and is still needed.
  void save(const Node& node, const NameTable<Entry>& table) {
    if (!needed_from_) return;
    if (*needed_from_ > 0 && table.hash(node.name()) < *needed_from_) return;
    names_.try_emplace(std::string(node.name()), Saved{node.entry.value, node.entry.exists()});
  }

  // Names with a hash below this are not needed any more; nothing: no name is.
  void need_from(std::optional<Hash> hash) { needed_from_ = hash; }
  std::optional<Hash> needed_from() const { return needed_from_; }

  // What a name held, if it has changed since.
  const Saved* find(std::string_view name) const {
    if (names_.empty()) return nullptr;
    auto found = names_.find(name);
    return found != names_.end() ? &found->second : nullptr;
  }

  // All names that have changed.
  Names::const_iterator begin() const { return names_.begin(); }
  Names::const_iterator end() const { return names_.end(); }
  using Iterator = Names::const_iterator;

 private:
  std::optional<Hash> needed_from_ = 0;
  Names names_;
};

}  // namespace ddprun::store
