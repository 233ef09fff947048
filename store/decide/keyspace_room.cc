// SPDX-License-Identifier: BSD-3-Clause
//
// The part of the keyspace that counts what is stored, and knows what there is room for.
#include <algorithm>
#include <limits>

#include "store/decide/keyspace.h"

namespace ddprun::store {

void Keyspace::account(std::size_t bytes, std::size_t keys) {
  usage_.bytes += bytes;
  usage_.keys += keys;
  if (shared_ == nullptr) return;
  shared_->bytes += bytes;
  shared_->keys += keys;
}

void Keyspace::discount(std::size_t bytes, std::size_t keys) {
  usage_.bytes -= bytes;
  usage_.keys -= keys;
  if (shared_ == nullptr) return;
  shared_->bytes -= bytes;
  shared_->keys -= keys;
}

std::size_t Keyspace::room_bytes(ClientId client) const {
  if (client >= kFirstOwnClient) return std::numeric_limits<std::size_t>::max();
  return limits_.max_bytes - std::min(limits_.max_bytes, total().bytes + total().promised_bytes);
}

std::size_t Keyspace::room_keys(ClientId client) const {
  if (client >= kFirstOwnClient) return std::numeric_limits<std::size_t>::max();
  return limits_.max_keys - std::min(limits_.max_keys, total().keys + total().promised_keys);
}

// Why there is no room for all of `pairs`, or what they need at most.
std::optional<std::string> Keyspace::room_for(ClientId client, std::span<const KeyValue> pairs,
                                              Usage& needed) const {
  needed.promised_keys = pairs.size();
  for (const KeyValue& pair : pairs) needed.promised_bytes += bytes_of(pair);
  if (needed.promised_bytes <= room_bytes(client) && needed.promised_keys <= room_keys(client)) {
    return std::nullopt;
  }
  return "no room for a MULTI_SET of " + std::to_string(pairs.size()) + " keys";
}

// Whether `key` may hold a value of so many bytes, in place of the one it may hold now.
bool Keyspace::has_room_for(ClientId client, std::string_view key, std::size_t value_bytes) {
  std::size_t new_bytes = key.size() + kNameOverheadBytes + value_bytes + kValueOverheadBytes;
  if (new_bytes <= room_bytes(client) && room_keys(client) > 0) return true;
  const Node* node = find(key);
  bool is_present = node != nullptr && node->entry.value;
  if (!is_present) return false;
  return value_bytes <= room_bytes(client) + node->entry.value.size();
}

}  // namespace ddprun::store
