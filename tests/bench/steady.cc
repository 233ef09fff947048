// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "store/base/check.h"
#include "tests/bench/scenarios.h"

namespace ddprun::bench {
using namespace store;

namespace {

constexpr int kManyKeys = 1024;  // of a multi_get or multi_set

// What a connection sends in one turn, the bytes of the replies, and the operations it counts for.
struct Turn {
  std::string bytes;
  std::size_t reply_bytes;
  int operations;
};
using Turns = std::vector<Turn>;

std::vector<std::string> many_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kManyKeys; ++i) names.push_back("/many" + std::to_string(i));
  return names;
}

std::string key_of(std::size_t client) {
  return "/key" + std::to_string(client);
}

Turns multi_turns(const Options& options) {
  std::vector<std::string> names = many_names();
  if (options.scenario == "multi_get") {
    std::vector<std::string_view> keys(names.begin(), names.end());
    return {{bytes_of({request::MultiGet{keys}}), kManyKeys * (8 + kValueBytes), 1}};
  }
  std::string value(kValueBytes, 'v');
  std::vector<KeyValue> pairs;
  for (const std::string& name : names) pairs.push_back({name, value});
  return {{bytes_of({request::MultiSet{pairs}, request::Ping{1}}), 4, 1}};
}

Turns turns_of(const Options& options, std::size_t client) {
  std::string key = key_of(client);
  std::string value(kValueBytes, 'v');
  std::vector<std::string_view> one{key};
  auto repeated = [&](const Request& request, std::size_t reply) {
    Turn turn{"", reply * std::size_t(options.depth), options.depth};
    for (int i = 0; i < options.depth; ++i) encode(request, turn.bytes);
    return Turns{turn};
  };
  if (options.scenario == "get") return repeated(request::Get{key}, 8 + kValueBytes);
  if (options.scenario == "add") return repeated(request::Add{"/sum" + key, 1}, 8);
  if (options.scenario == "check") return repeated(request::Check{one}, 1);
  if (options.scenario == "set") {
    Turns turns = repeated(request::Set{key, value}, 0);
    turns[0].bytes += bytes_of({request::Ping{1}});
    turns[0].reply_bytes = 4;
    return turns;
  }
  if (options.scenario == "set_wait_get") {
    return {{bytes_of({request::Set{key, value}, request::Wait{one}}), 1, 1},
            {bytes_of({request::Get{key}}), 8 + kValueBytes, 1}};
  }
  return multi_turns(options);
}

// Sets all keys that are asked for.
void prepare(Load& load, const Options& options) {
  std::string value(kValueBytes, 'v');
  std::string bytes;
  for (int i = 0; i < options.connections; ++i) {
    encode(request::Set{key_of(std::size_t(i)), value}, bytes);
  }
  for (const std::string& name : many_names()) encode(request::Set{name, value}, bytes);
  encode(request::Ping{1}, bytes);
  load.ask(load[0], bytes, 4);
}

}  // namespace

void steady(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(options.connections);
  prepare(load, options);
  std::vector<Turns> turns;
  for (std::size_t i = 0; i < load.size(); ++i) turns.push_back(turns_of(options, i));
  std::vector<double> latencies_us;
  long operations = 0;
  bool is_over = false;
  std::size_t idle_count = 0;
  auto send_turn = [&](Connection& connection) {
    const Turns& own = turns[connection.index];
    const Turn& turn = own[connection.turn % own.size()];
    load.send(connection, turn.bytes, turn.reply_bytes);
  };
  load.on_turn = [&](Connection& connection) {
    const Turns& own = turns[connection.index];
    operations += own[connection.turn++ % own.size()].operations;
    latencies_us.push_back(seconds_since(connection.began) * 1e6);
    if (is_over) {
      ++idle_count;
    } else {
      send_turn(connection);
    }
  };
  Meter meter(options.pid);
  for (std::size_t i = 0; i < load.size(); ++i) send_turn(load[i]);
  load.run_until([&] { return meter.elapsed() >= options.seconds; });
  double per_second = double(operations) / meter.elapsed();
  is_over = true;
  load.run_until([&] { return idle_count == load.size(); });
  double elapsed = meter.elapsed();
  print({{"per_second", per_second},
         {"cpu_us", meter.server_cpu() * 1e6 / double(operations)},
         {"p50_us", quantile(latencies_us, 0.5)},
         {"p99_us", quantile(latencies_us, 0.99)},
         {"client_cpu_us", meter.own_cpu() * 1e6 / double(operations)},
         {"server_busy", meter.server_cpu() / elapsed},
         {"client_busy", meter.own_cpu() / elapsed}});
}

}  // namespace ddprun::bench
