// SPDX-License-Identifier: BSD-3-Clause
//
// How much a keyspace stores, and how much room is left under its limits.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "store/decide/outgoing.h"
#include "store/decide/wire.h"

namespace ddprun::store {

// The room that keys, values, queues, last wills, waits and announcements take up, and the most
// that a MULTI_SET in progress will still take.
struct Usage {
  std::size_t keys = 0;
  std::size_t bytes = 0;
  std::size_t promised_keys = 0;
  std::size_t promised_bytes = 0;
};

// Limits of the whole store.  torch has none of them.  A client that exceeds one is disconnected.
struct KeyspaceLimits {
  std::size_t max_keys = std::numeric_limits<std::size_t>::max();
  std::size_t max_queue_items = std::numeric_limits<std::size_t>::max();  // of one queue
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();        // as Usage counts them
  // Of one connection at one time; one WAIT of torch's largest size must fit.
  std::size_t max_awaited_keys = 2 * 131072;
  // WAITs, BARRIERs and QUEUE_TAKEs of one connection that have not been answered.  torch's client
  // has one.  Their end costs others the time that all of one connection take.
  std::size_t max_waits = 64;
  // A request that costs more than so many names is large: see Keyspace::begin().
  std::size_t names_at_once = 4096;
  // Where more clients wait for a key that a request stores, or for several, some are told later:
  // see Keyspace::clean_up().
  std::size_t wakes_at_once = 1024;
};

// The approximate cost of each thing besides its bytes: of a queue without its items, and of a wait
// without its names, but with what is kept for its client.
namespace cost {
inline constexpr std::size_t kName = 128;
inline constexpr std::size_t kValue = 40;
inline constexpr std::size_t kQueue = 700;
inline constexpr std::size_t kWait = 256;
inline constexpr std::size_t kAwaitedName = 56;
inline constexpr std::size_t kAnnouncement = 400;  // of a client that is expected

inline std::size_t of_pair(const KeyValue& pair) {
  return pair.key.size() + pair.value.size() + kName + kValue;
}
// A queue of one item, or a last will.
inline std::size_t of_queue(std::string_view queue, std::size_t item_bytes) {
  return queue.size() + item_bytes + kName + kValue + kQueue;
}
}  // namespace cost

// Threads: not safe for concurrent use.
class Budget {
 public:
  // The limits hold for all budgets with the same `shared` together, which must outlive them.
  Budget(const KeyspaceLimits& limits, Usage* shared)
      : max_bytes_(limits.max_bytes), max_keys_(limits.max_keys), shared_(shared) {}

  const Usage& usage() const { return usage_; }

  void add(std::size_t bytes, std::size_t keys = 0) {
    usage_.bytes += bytes;
    usage_.keys += keys;
    if (shared_ == nullptr) return;
    shared_->bytes += bytes;
    shared_->keys += keys;
  }
  void remove(std::size_t bytes, std::size_t keys = 0) {
    usage_.bytes -= bytes;
    usage_.keys -= keys;
    if (shared_ == nullptr) return;
    shared_->bytes -= bytes;
    shared_->keys -= keys;
  }
  void remove_all() { remove(usage_.bytes, usage_.keys); }

  // Sets room aside for pairs that are still to come, and gives it back.
  void promise(std::size_t keys, std::size_t bytes);
  void keep_promise(std::size_t keys, std::size_t bytes);

  // What is left for this client.
  std::size_t room_bytes(ClientId client) const;
  std::size_t room_keys(ClientId client) const;
  bool has_room_for(ClientId client, std::span<const KeyValue> pairs) const;

 private:
  const Usage& total() const { return shared_ != nullptr ? *shared_ : usage_; }

  std::size_t max_bytes_;
  std::size_t max_keys_;
  Usage usage_;
  Usage* shared_;
};

// A name that a client has chosen, for the log.
std::string shown(std::string_view name);

// Why a request is refused that needs more room than there is.
std::string no_room(const char* operation, std::string_view name);
std::string no_room_for_pairs(std::size_t count);

}  // namespace ddprun::store
