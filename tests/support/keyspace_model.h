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
#include "store/decide/keyspace.h"
#include "store/decide/wire.h"

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
    std::vector<int> places{};  // of the names, in the order in which anybody came to wait for one
    bool is_open = false;       // more names are to come
  };
  struct Hold {
    store::ClientId client;
    std::string queue;
    MonoTime since;
  };

  std::map<std::string, std::string> keys;
  std::map<std::string, std::deque<std::string>> queues;
  std::vector<Wait> waits;
  int last_place = 0;
  std::vector<Hold> holds;
  std::map<store::ClientId, std::pair<std::string, std::string>> wills;
  Answers answers;

  // Carries out a request.  Answers whether the client may stay.
  bool execute(store::ClientId client, const store::Request& request, MonoTime now);
  void leave(store::ClientId client, MonoTime now);
  void expire(MonoTime now);

  // A WAIT of many names, name by name.
  void open_wait(store::ClientId client);
  void extend_wait(store::ClientId client, const std::string& name);
  void close_wait(store::ClientId client);
  // A pair of a MULTI_SET of many.
  void set(const std::string& key, const std::string& value);
  // As before each request of a client.
  void release(store::ClientId client, const std::optional<std::string>& except, MonoTime now);

 private:
  struct Execution;

  void say(store::ClientId client, const std::string& what) { answers[client] += what + ";"; }
  bool exists(const std::string& name) { return keys.contains(name) || !queues[name].empty(); }
  std::string get(const std::string& key) { return keys.contains(key) ? keys[key] : ""; }
  std::size_t free_items(const std::string& queue);
  void key_came(const std::string& key);
  std::optional<std::int64_t> add(const std::string& key, std::int64_t delta);
  void pop(store::ClientId client, const std::string& queue);
  void push(const std::string& queue, const std::string& item, MonoTime now);
  void offer(const std::string& queue, MonoTime now);
  void await(store::ClientId client, Kind kind, std::vector<std::string> names,
             MonoTime deadline = {});
  std::vector<Wait>::iterator open_wait_of(store::ClientId client);
  std::pair<std::vector<Wait>::iterator, std::ptrdiff_t> first_for(const std::string& name);
  static bool drop_name(Wait& wait, const std::string& name);
  void wait(store::ClientId client, std::vector<std::string> names, MonoTime now);
};

// Requests of a few clients about a few names, on the keyspace and on the model; in every fourth
// program about a crowd of names too, so many that the table of names splits and merges.
class KeyspaceProgram {
 public:
  // A number below `count`, which is at most 65536.
  using Pick = std::function<std::size_t(std::size_t count)>;

  // In every second program nearly all requests about several names are large ones.
  explicit KeyspaceProgram(Pick pick)
      : pick_(std::move(pick)),
        is_crowded_(pick_(4) == 0),
        keyspace_({.names_at_once = pick_(2) == 0 ? 1U : 4096U}) {}

  // Plays one step.  Answers in which way the two differ after it; nothing where they do not.
  std::string step();

  // Everybody leaves and everything is deleted: answers what is left all the same.
  std::string finish();

  // How many keys there were at one time.
  std::size_t most_keys() const { return most_keys_; }

 private:
  // A large request under way.
  struct Large {
    store::ClientId client;
    store::Request request;
    std::vector<std::string_view> names;
    std::vector<store::KeyValue> pairs;
    std::size_t next = 0;
    bool is_done = false;
    std::size_t listed = 0;  // where in `got` the answer of a LIST_KEYS begins
    store::Replies got;      // by its client
    std::string expected;    // by its client
    std::string late;        // by its client, of other requests, and so after the rest
  };

  std::string_view pick_name();
  store::Request request();
  store::Request crowd_request();
  std::string difference(const store::Replies& replies) const;
  bool play(store::ClientId client, const store::Request& asked, store::Replies& replies);
  void delete_crowd(store::Replies& replies);
  void begin_large(store::ClientId client, const store::Request& asked, store::Replies& replies);
  void proceed(std::size_t effort, store::Replies& replies);
  void proceed_in_model(std::size_t effort);
  std::string take_from_large(store::Replies& replies, bool proceeded);

  Pick pick_;
  bool is_crowded_;
  store::Keyspace keyspace_;
  KeyspaceModel model_;
  MonoTime now_{std::chrono::hours(1)};
  std::size_t most_keys_ = 0;
  std::string name_;
  std::vector<std::string_view> names_;
  std::vector<store::KeyValue> pairs_;
  std::optional<Large> large_;
  std::string fault_;
};

}  // namespace ddprun::test
