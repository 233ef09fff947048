// SPDX-License-Identifier: BSD-3-Clause
//
// A model of the keyspace that is too simple to be wrong: plain containers, searched from end to
// end; and random programs that are played on both.  tests/store/keyspace_model_test.cc draws them
// from a seed, tests/fuzz/keyspace_fuzz.cc from libFuzzer's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/time.h"
#include "store/keyspace.h"
#include "store/wire.h"

namespace ddprun::test {

// What each client was answered in one step.
using Answers = std::map<store::ClientId, std::string>;

struct KeyspaceModel {
  enum class Kind { Names, One, Take };
  struct Wait {
    store::ClientId client;
    Kind kind;
    std::vector<std::string> names;
    MonoTime deadline;
  };
  struct Hold {
    store::ClientId client;
    std::string queue;
    MonoTime since;
  };

  std::map<std::string, std::string> keys;
  std::map<std::string, std::deque<std::string>> queues;
  std::vector<Wait> waits;
  std::vector<Hold> holds;
  std::map<store::ClientId, std::pair<std::string, std::string>> wills;
  Answers answers;

  // Carries out a request.  Answers whether the client may stay.
  bool execute(store::ClientId client, const store::Request& request, MonoTime now);
  void leave(store::ClientId client, MonoTime now);
  void expire(MonoTime now);

 private:
  struct Execution;

  void say(store::ClientId client, const std::string& what) { answers[client] += what + ";"; }
  bool exists(const std::string& name) { return keys.contains(name) || !queues[name].empty(); }
  std::string get(const std::string& key) { return keys.contains(key) ? keys[key] : ""; }
  std::size_t free_items(const std::string& queue);
  void set(const std::string& key, const std::string& value);
  void key_came(const std::string& key);
  std::optional<std::int64_t> add(const std::string& key, std::int64_t delta);
  void pop(store::ClientId client, const std::string& queue);
  void push(const std::string& queue, const std::string& item, MonoTime now);
  void offer(const std::string& queue, MonoTime now);
  void release(store::ClientId client, const std::optional<std::string>& except, MonoTime now);
  void wait(store::ClientId client, std::vector<std::string> names, MonoTime now);
};

// Requests of a few clients about a few names, on the keyspace and on the model.
class KeyspaceProgram {
 public:
  // A number below `count`, which is at most 65536.
  using Pick = std::function<std::size_t(std::size_t count)>;

  explicit KeyspaceProgram(Pick pick) : pick_(std::move(pick)) {}

  // Plays one step.  Answers in which way the two differ after it; nothing where they do not.
  std::string step();

  // Everybody leaves and everything is deleted: answers what is left all the same.
  std::string finish();

 private:
  store::Request request();
  std::string difference(const store::Replies& replies) const;

  Pick pick_;
  store::Keyspace keyspace_;
  KeyspaceModel model_;
  MonoTime now_{std::chrono::hours(1)};
  std::string name_;
  std::vector<std::string_view> names_;
  std::vector<store::KeyValue> pairs_;
};

}  // namespace ddprun::test
