// SPDX-License-Identifier: BSD-3-Clause
//
// What may be asked of a store, wherever it is.  The words are c10d's: a key that is asked for is
// waited for, and names are shared with torch's clients of the same server.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/base/error.h"
#include "store/base/time.h"

namespace ddprun::store {

template <class T>
using Async = boost::asio::awaitable<Result<T>>;

// A key-value store with waiting.
//
// Every call fails with Errc::Closed, or the system's code, once the store cannot be reached any
// more, and with operation_aborted when the calling coroutine is cancelled.  Calls that wait take
// a timeout and fail with Errc::TimedOut when it has passed; the store is then as usable as before.
//
// Threads: used from one thread.  Lifetime: must outlive its calls.
class Store {
 public:
  virtual ~Store() = default;

  // Stores or overwrites.  It may return before the store has seen it; calls keep their order.
  virtual Async<void> set(std::string key, std::string value) = 0;

  // Stores `desired` where the key holds `expected`, or does not exist and `expected` is empty.
  // Answers what the key holds then; for a missing key and an `expected` that is not empty it
  // answers `expected`, as c10d does.
  virtual Async<std::string> compare_set(std::string key, std::string expected,
                                         std::string desired) = 0;

  // The value, once the key exists.
  virtual Async<std::string> get(std::string key, Duration timeout) = 0;

  // Adds to a decimal counter, which starts at 0, and answers the sum.
  virtual Async<std::int64_t> add(std::string key, std::int64_t delta) = 0;

  // Whether all the keys exist now.
  virtual Async<bool> check(std::vector<std::string> keys) = 0;

  // Completes when each of the keys exists, or has existed in the meantime.
  virtual Async<void> wait(std::vector<std::string> keys, Duration timeout) = 0;

  // The number of keys in the whole store, whatever their prefix.
  virtual Async<std::int64_t> num_keys() = 0;

  // Answers whether the key existed.
  virtual Async<bool> delete_key(std::string key) = 0;

  virtual Async<void> append(std::string key, std::string piece) = 0;
  virtual Async<std::vector<std::string>> multi_get(std::vector<std::string> keys,
                                                    Duration timeout) = 0;
  virtual Async<void> multi_set(std::vector<std::pair<std::string, std::string>> pairs) = 0;

  virtual Async<void> queue_push(std::string queue, std::string item) = 0;
  // The oldest item, once there is one.
  virtual Async<std::string> queue_pop(std::string queue, Duration timeout) = 0;
  // The oldest item, if there is one now.
  virtual Async<std::optional<std::string>> queue_try_pop(std::string queue) = 0;
  virtual Async<std::int64_t> queue_len(std::string queue) = 0;

  // The keys, in no order.
  virtual Async<std::vector<std::string>> list_keys() = 0;

  // Completes when `world_size` calls have been made for this key.  A key serves one barrier.
  virtual Async<void> barrier(std::string key, std::int64_t world_size, Duration timeout) = 0;
};

// The part of a store whose names begin with "<prefix>/", as c10d's PrefixStore spells them.
//
// Lifetime: `store` must outlive it.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, Store& store);

  Async<void> set(std::string key, std::string value) override;
  Async<std::string> compare_set(std::string key, std::string expected,
                                 std::string desired) override;
  Async<std::string> get(std::string key, Duration timeout) override;
  Async<std::int64_t> add(std::string key, std::int64_t delta) override;
  Async<bool> check(std::vector<std::string> keys) override;
  Async<void> wait(std::vector<std::string> keys, Duration timeout) override;
  Async<std::int64_t> num_keys() override;
  Async<bool> delete_key(std::string key) override;
  Async<void> append(std::string key, std::string piece) override;
  Async<std::vector<std::string>> multi_get(std::vector<std::string> keys,
                                            Duration timeout) override;
  Async<void> multi_set(std::vector<std::pair<std::string, std::string>> pairs) override;
  Async<void> queue_push(std::string queue, std::string item) override;
  Async<std::string> queue_pop(std::string queue, Duration timeout) override;
  Async<std::optional<std::string>> queue_try_pop(std::string queue) override;
  Async<std::int64_t> queue_len(std::string queue) override;
  // Only the keys with this prefix, without it.
  Async<std::vector<std::string>> list_keys() override;
  Async<void> barrier(std::string key, std::int64_t world_size, Duration timeout) override;

 private:
  std::string prefixed(const std::string& name) const { return prefix_ + name; }
  std::vector<std::string> prefixed(std::vector<std::string> names) const;

  std::string prefix_;  // with its slash
  Store& store_;
};

}  // namespace ddprun::store
