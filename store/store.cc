// SPDX-License-Identifier: BSD-3-Clause
#include "store/store.h"

namespace ddprun::store {

PrefixStore::PrefixStore(std::string prefix, Store& store)
    : prefix_(std::move(prefix) + "/"), store_(store) {}

std::vector<std::string> PrefixStore::prefixed(std::vector<std::string> names) const {
  for (std::string& name : names) name.insert(0, prefix_);
  return names;
}

Async<void> PrefixStore::set(std::string key, std::string value) {
  return store_.set(prefixed(key), std::move(value));
}

Async<std::string> PrefixStore::compare_set(std::string key, std::string expected,
                                            std::string desired) {
  return store_.compare_set(prefixed(key), std::move(expected), std::move(desired));
}

Async<std::string> PrefixStore::get(std::string key, Duration timeout) {
  return store_.get(prefixed(key), timeout);
}

Async<std::int64_t> PrefixStore::add(std::string key, std::int64_t delta) {
  return store_.add(prefixed(key), delta);
}

Async<bool> PrefixStore::check(std::vector<std::string> keys) {
  return store_.check(prefixed(std::move(keys)));
}

Async<void> PrefixStore::wait(std::vector<std::string> keys, Duration timeout) {
  return store_.wait(prefixed(std::move(keys)), timeout);
}

Async<std::int64_t> PrefixStore::num_keys() {
  return store_.num_keys();
}

Async<bool> PrefixStore::delete_key(std::string key) {
  return store_.delete_key(prefixed(key));
}

Async<void> PrefixStore::append(std::string key, std::string piece) {
  return store_.append(prefixed(key), std::move(piece));
}

Async<std::vector<std::string>> PrefixStore::multi_get(std::vector<std::string> keys,
                                                       Duration timeout) {
  return store_.multi_get(prefixed(std::move(keys)), timeout);
}

Async<void> PrefixStore::multi_set(std::vector<std::pair<std::string, std::string>> pairs) {
  for (auto& [key, value] : pairs) key.insert(0, prefix_);
  return store_.multi_set(std::move(pairs));
}

Async<void> PrefixStore::queue_push(std::string queue, std::string item) {
  return store_.queue_push(prefixed(queue), std::move(item));
}

Async<std::string> PrefixStore::queue_pop(std::string queue, Duration timeout) {
  return store_.queue_pop(prefixed(queue), timeout);
}

Async<std::optional<std::string>> PrefixStore::queue_try_pop(std::string queue) {
  return store_.queue_try_pop(prefixed(queue));
}

Async<std::int64_t> PrefixStore::queue_len(std::string queue) {
  return store_.queue_len(prefixed(queue));
}

Async<std::vector<std::string>> PrefixStore::list_keys() {
  Result<std::vector<std::string>> all = co_await store_.list_keys();
  if (!all) co_return all.error();
  std::vector<std::string> own;
  for (const std::string& key : *all) {
    if (key.starts_with(prefix_)) own.push_back(key.substr(prefix_.size()));
  }
  co_return own;
}

Async<void> PrefixStore::barrier(std::string key, std::int64_t world_size, Duration timeout) {
  return store_.barrier(prefixed(key), world_size, timeout);
}

}  // namespace ddprun::store
