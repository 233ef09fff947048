// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/budget.h"

#include <algorithm>

#include "store/base/text.h"

namespace ddprun::store {

void Budget::promise(std::size_t keys, std::size_t bytes) {
  for (Usage* usage : {&usage_, shared_}) {
    if (usage == nullptr) continue;
    usage->promised_keys += keys;
    usage->promised_bytes += bytes;
  }
}

void Budget::keep_promise(std::size_t keys, std::size_t bytes) {
  for (Usage* usage : {&usage_, shared_}) {
    if (usage == nullptr) continue;
    usage->promised_keys -= keys;
    usage->promised_bytes -= bytes;
  }
}

std::size_t Budget::room_bytes(ClientId client) const {
  if (is_own(client)) return std::numeric_limits<std::size_t>::max();
  return max_bytes_ - std::min(max_bytes_, total().bytes + total().promised_bytes);
}

std::size_t Budget::room_keys(ClientId client) const {
  if (is_own(client)) return std::numeric_limits<std::size_t>::max();
  return max_keys_ - std::min(max_keys_, total().keys + total().promised_keys);
}

bool Budget::has_room_for(ClientId client, std::span<const KeyValue> pairs) const {
  std::size_t bytes = 0;
  for (const KeyValue& pair : pairs) bytes += cost::of_pair(pair);
  return bytes <= room_bytes(client) && pairs.size() <= room_keys(client);
}

std::string shown(std::string_view name) {
  constexpr std::size_t kShownBytes = 200;
  return printable(cut(name, kShownBytes));
}

std::string no_room(const char* operation, std::string_view name) {
  return std::string("no room for ") + operation + " of '" + shown(name) + "'";
}

std::string no_room_for_pairs(std::size_t count) {
  return "no room for a MULTI_SET of " + std::to_string(count) + " keys";
}

}  // namespace ddprun::store
