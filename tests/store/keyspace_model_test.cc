// SPDX-License-Identifier: BSD-3-Clause
//
// The keyspace against a model of it that is too simple to be wrong: plain containers, searched
// from end to end.  Random requests of a few clients about a few names, from a seed, must have the
// same answers from both, and leave nothing behind.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/variant.h"
#include "store/keyspace.h"

using namespace ddprun::store;
using namespace std::chrono_literals;
using ddprun::MonoTime;

namespace {

// What each client was answered in one step.
using Answers = std::map<ClientId, std::string>;

struct Model {
  enum class Kind { Names, One, Take };
  struct Wait {
    ClientId client;
    Kind kind;
    std::vector<std::string> names;
    MonoTime deadline;
  };
  struct Hold {
    ClientId client;
    std::string queue;
    MonoTime since;
  };

  std::map<std::string, std::string> keys;
  std::map<std::string, std::deque<std::string>> queues;
  std::vector<Wait> waits;
  std::vector<Hold> holds;
  std::map<ClientId, std::pair<std::string, std::string>> wills;
  Answers answers;

  void say(ClientId client, const std::string& what) { answers[client] += what + ";"; }

  bool exists(const std::string& name) { return keys.contains(name) || !queues[name].empty(); }

  std::size_t free_items(const std::string& queue) {
    auto is_held = [&](const Hold& hold) { return hold.queue == queue; };
    return queues[queue].size() - std::size_t(std::count_if(holds.begin(), holds.end(), is_held));
  }

  void key_came(const std::string& key) {
    for (std::size_t i = 0; i < waits.size();) {
      Wait& wait = waits[i];
      bool concerns = wait.kind != Kind::Take && std::erase(wait.names, key) > 0;
      if (!concerns || !wait.names.empty()) {
        ++i;
        continue;
      }
      say(wait.client, "0");
      waits.erase(waits.begin() + std::ptrdiff_t(i));
    }
  }

  void pop(ClientId client, const std::string& queue) {
    auto& items = queues[queue];
    say(client, std::to_string(items.size()) + " " + items.front());
    items.pop_front();
  }

  void offer(const std::string& queue, MonoTime now) {
    for (std::size_t i = 0; i < waits.size() && free_items(queue) > 0;) {
      Wait& wait = waits[i];
      auto name = std::find(wait.names.begin(), wait.names.end(), queue);
      if (name == wait.names.end()) {
        ++i;
        continue;
      }
      Wait ended = wait;
      wait.names.erase(name);
      if (!wait.names.empty()) continue;  // the same name may be there twice
      waits.erase(waits.begin() + std::ptrdiff_t(i));
      if (ended.kind == Kind::Take) {
        pop(ended.client, queue);
        continue;
      }
      if (ended.kind == Kind::One) holds.push_back({ended.client, queue, now});
      say(ended.client, "0");
    }
  }

  void push(const std::string& queue, const std::string& item, MonoTime now) {
    queues[queue].push_back(item);
    offer(queue, now);
  }

  void release(ClientId client, const std::optional<std::string>& except, MonoTime now) {
    std::vector<std::string> freed;
    std::erase_if(holds, [&](const Hold& hold) {
      bool is_freed = hold.client == client && hold.queue != except;
      if (is_freed) freed.push_back(hold.queue);
      return is_freed;
    });
    // The keyspace frees the latest first; what each client hears does not depend on it.
    for (const std::string& queue : freed) offer(queue, now);
  }

  void leave(ClientId client, MonoTime now) {
    std::erase_if(waits, [&](const Wait& wait) { return wait.client == client; });
    release(client, std::nullopt, now);
    auto will = wills.extract(client);
    if (will) push(will.mapped().first, will.mapped().second, now);
  }

  void expire(MonoTime now) {
    while (!holds.empty() && holds.front().since + Keyspace::kHold <= now) {
      std::string queue = holds.front().queue;
      holds.erase(holds.begin());
      offer(queue, now);
    }
    for (std::size_t i = 0; i < waits.size();) {
      if (waits[i].kind != Kind::Take || waits[i].deadline > now) {
        ++i;
        continue;
      }
      say(waits[i].client, "0 none");
      waits.erase(waits.begin() + std::ptrdiff_t(i));
    }
  }

  std::int64_t add(const std::string& key, std::int64_t delta) {
    std::int64_t sum = (keys.contains(key) ? std::stoll(keys[key]) : 0) + delta;
    keys[key] = std::to_string(sum);
    return sum;
  }

  void execute(ClientId client, const Request& request, MonoTime now) {
    const auto* pops = std::get_if<request::QueuePop>(&request);
    release(client, pops ? std::optional(std::string(pops->queue)) : std::nullopt, now);
    std::visit(
        ddprun::Overloaded{
            [&](const request::Set& r) {
              keys[std::string(r.key)] = r.value;
              key_came(std::string(r.key));
            },
            [&](const request::Get& r) {
              say(client, keys.contains(std::string(r.key)) ? keys[std::string(r.key)] : "");
            },
            [&](const request::Add& r) {
              std::int64_t sum = add(std::string(r.key), r.delta);
              key_came(std::string(r.key));
              say(client, std::to_string(sum));
            },
            [&](const request::DeleteKey& r) {
              say(client, std::to_string(keys.erase(std::string(r.key))));
            },
            [&](const request::Check& r) {
              bool all = std::all_of(r.keys.begin(), r.keys.end(),
                                     [&](auto key) { return exists(std::string(key)); });
              say(client, all ? "0" : "1");
            },
            [&](const request::Wait& r) { wait(client, r, now); },
            [&](const request::CancelWait&) {
              std::erase_if(waits, [&](const Wait& one) { return one.client == client; });
              say(client, "1");
            },
            [&](const request::QueuePush& r) {
              push(std::string(r.queue), std::string(r.value), now);
            },
            [&](const request::QueuePop& r) {
              std::string queue(r.queue);
              auto own = std::find_if(holds.begin(), holds.end(), [&](const Hold& hold) {
                return hold.client == client && hold.queue == queue;
              });
              if (own != holds.end()) holds.erase(own);
              free_items(queue) > 0 ? pop(client, queue) : say(client, "0 none");
            },
            [&](const request::QueueTake& r) {
              std::string queue(r.queue);
              if (free_items(queue) > 0) return pop(client, queue);
              waits.push_back(
                  {client, Kind::Take, {queue}, now + std::chrono::milliseconds(r.timeout_ms)});
            },
            [&](const request::Barrier& r) {
              std::string key(r.key);
              if (add(key, 1) < r.world_size) {
                waits.push_back({client, Kind::Names, {key}, {}});
                return;
              }
              say(client, "0");
              key_came(key);
            },
            [&](const request::Will& r) {
              wills[client] = {std::string(r.queue), std::string(r.item)};
              say(client, "0");
            },
            [&](const request::ClearWill&) {
              wills.erase(client);
              say(client, "0");
            },
            [](const auto&) { FAIL("a request that the model does not know"); },
        },
        request);
  }

  void wait(ClientId client, const request::Wait& r, MonoTime now) {
    std::vector<std::string> names(r.keys.begin(), r.keys.end());
    if (names.size() == 1) {
      bool has_item = free_items(names[0]) > 0;
      if (has_item) holds.push_back({client, names[0], now});
      if (has_item || keys.contains(names[0])) return say(client, "0");
      waits.push_back({client, Kind::One, names, {}});
      return;
    }
    std::erase_if(names, [&](const std::string& name) { return exists(name); });
    if (names.empty()) return say(client, "0");
    waits.push_back({client, Kind::Names, names, {}});
  }
};

// The replies in the model's words.
Answers in_words(const Replies& replies) {
  Answers answers;
  for (const Outgoing& outgoing : replies) {
    std::string& text = answers[outgoing.to];
    std::visit(ddprun::Overloaded{
                   [&](const reply::Byte& r) { text += std::to_string(r.value) + ";"; },
                   [&](const reply::Nonce& r) { text += std::to_string(r.value) + ";"; },
                   [&](const reply::Number& r) { text += std::to_string(r.value) + ";"; },
                   [&](const reply::Bytes& r) { text += std::string(r.value.view()) + ";"; },
               },
               outgoing.reply);
  }
  return answers;
}

// The model says "3 item;" where the wire has "3;item;", and "0 none;" where it has "0;".
Answers on_wire(Answers answers) {
  for (auto& [client, text] : answers) {
    for (std::size_t at; (at = text.find(" none")) != std::string::npos;) text.erase(at, 5);
    std::replace(text.begin(), text.end(), ' ', ';');
  }
  return answers;
}

struct Program {
  std::mt19937 random;
  Keyspace keyspace;
  Model model;
  MonoTime now{};
  std::string name, other;
  std::vector<std::string_view> names;

  explicit Program(std::uint32_t seed) : random(seed) { now += 1h; }

  std::size_t pick(std::size_t count) { return random() % count; }

  Request request() {
    static const std::string kNames[] = {"a", "b", "c", "d"};
    static const std::string kItems[] = {"x", "y", "z"};
    name = kNames[pick(4)];
    names.clear();
    for (std::size_t i = pick(4); i > 0; --i) names.push_back(kNames[pick(4)]);
    switch (pick(16)) {
      case 0:
        return request::Set{name, "7"};
      case 1:
        return request::Get{name};
      case 2:
        return request::Add{name, 1};
      case 3:
      case 4:
        return request::DeleteKey{name};
      case 5:
        return request::Check{names};
      case 6:
        return request::Wait{names};
      case 7:
        return names = {name}, request::Wait{names};
      case 8:
        return request::CancelWait{};
      case 9:
      case 10:
        return request::QueuePush{name, kItems[pick(3)]};
      case 11:
        return request::QueuePop{name};
      case 12:
        return request::QueueTake{name, std::int64_t(1 + pick(4000))};
      case 13:
        return request::Barrier{name, std::int64_t(pick(4))};
      case 14:
        return request::Will{name, "lost"};
      default:
        return request::ClearWill{};
    }
  }

  void step() {
    ClientId client = 1 + pick(5);
    Replies replies;
    model.answers.clear();
    std::size_t what = pick(40);
    if (what == 0) {
      keyspace.disconnect(client, now, replies);
      model.leave(client, now);
    } else if (what == 1) {
      now += std::chrono::milliseconds(pick(3000));
      keyspace.expire(now, replies);
      model.expire(now);
    } else {
      Request asked = request();
      auto fault = keyspace.execute(client, asked, now, replies);
      REQUIRE_FALSE(fault);
      model.execute(client, asked, now);
    }
    REQUIRE(in_words(replies) == on_wire(model.answers));
    REQUIRE(keyspace.key_count() == model.keys.size());
    REQUIRE(keyspace.wait_count() == model.waits.size());
  }

  // Everybody leaves and everything is deleted: nothing may be left.
  void finish() {
    Replies ignored;
    for (ClientId client = 1; client <= 5; ++client) keyspace.disconnect(client, now, ignored);
    for (std::string_view each : {"a", "b", "c", "d"}) {
      keyspace.execute(9, request::DeleteKey{each}, now, ignored);
      for (ignored.clear(); ignored.size() != 1;) {
        ignored.clear();
        keyspace.execute(9, request::QueuePop{each}, now, ignored);
      }
    }
    REQUIRE(keyspace.bytes() == 0);
    REQUIRE_FALSE(keyspace.deadline());
  }
};

}  // namespace

TEST_SUITE("store/keyspace/model") {
  TEST_CASE("random programs have the same answers from the keyspace and from a simple model") {
    std::uint32_t seed = std::random_device{}();
    std::cout << "seed " << seed << std::endl;
    for (std::uint32_t program = 0; program < 100; ++program) {
      CAPTURE(seed + program);
      Program played(seed + program);
      for (int i = 0; i < 500; ++i) {
        CAPTURE(i);
        played.step();
      }
      played.finish();
    }
  }
}
