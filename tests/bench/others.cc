// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "tests/bench/prober.h"
#include "tests/bench/scenarios.h"

namespace ddprun::bench {
using namespace store;

namespace {

constexpr std::size_t kLargeBytes = 8 << 20;  // torch's limit of one value

std::vector<std::string> names_of(const Options& options, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("/big" + options.tag + std::to_string(i));
  return names;
}

// A request, the bytes of its reply, and what must have been set before.
struct Big {
  std::string prelude;
  std::string request;
  std::size_t awaited = 0;
};

void set_all(const std::vector<std::string>& names, const std::string& value, std::string& out) {
  for (const std::string& name : names) encode(request::Set{name, value}, out);
}

// As many keys as one request of torch's may have.
Big most_keys(const Options& options) {
  Big big;
  std::vector<std::string> names = names_of(options, 131072);
  std::vector<std::string_view> keys(names.begin(), names.end());
  if (options.scenario == "big_wait") {  // for what does not exist, and is given up again
    big.request = bytes_of({request::Wait{keys}, request::CancelWait{}});
    big.awaited = 1;
    return big;
  }
  if (options.scenario == "big_multi_set_keys") {
    std::vector<KeyValue> pairs;
    for (std::string_view key : keys) pairs.push_back({key, "v"});
    big.request = bytes_of({request::MultiSet{pairs}, request::Ping{1}});
    big.awaited = 4;
    return big;
  }
  set_all(names, "v", big.prelude);
  if (options.scenario == "big_check") {  // all of them must be looked at
    big.request = bytes_of({request::Check{keys}});
    big.awaited = 1;
  } else {
    big.request = bytes_of({request::ListKeys{}});
    big.awaited = 8 + 8 + std::string_view("init/").size();
    for (const std::string& name : names) big.awaited += 8 + name.size();
  }
  return big;
}

Big big_of(const Options& options) {
  Big big;
  std::string large(kLargeBytes, 'v');
  if (options.scenario == "big_compare_set") {
    std::string name = "/big" + options.tag;
    set_all({name}, large, big.prelude);
    big.request = bytes_of({request::CompareSet{name, large, large}});
    big.awaited = 8 + large.size();
  } else if (options.scenario == "big_multi_set") {
    std::vector<KeyValue> pairs{{"/big0", large}, {"/big1", large}};
    big.request = bytes_of({request::MultiSet{pairs}, request::Ping{1}});
    big.awaited = 4;
  } else if (options.scenario != "big_multi_get") {
    return most_keys(options);
  } else {
    constexpr std::size_t kPageBytes = 4096;
    std::vector<std::string> names = names_of(options, 8192);
    std::vector<std::string_view> keys(names.begin(), names.end());
    set_all(names, std::string(kPageBytes, 'v'), big.prelude);
    big.request = bytes_of({request::MultiGet{keys}});
    big.awaited = names.size() * (8 + kPageBytes);
  }
  return big;
}

void print_with_others(const Meter& meter, double elapsed, std::vector<double> latencies_ms) {
  print({{"ms", elapsed * 1e3},
         {"cpu_ms", meter.server_cpu() * 1e3},
         {"others_p99_ms", quantile(latencies_ms, 0.99)},
         {"others_max_ms", quantile(latencies_ms, 1)}});
}

// All connections ask for the same at one moment.
void ask_of_all(Load& load, const Options& options, const std::string& request,
                std::size_t awaited) {
  Prober prober(options.port);
  Meter meter(options.pid);
  std::size_t answered = 0;
  load.on_turn = [&](Connection&) { ++answered; };
  for (std::size_t i = 0; i < load.size(); ++i) load.send(load[i], request, awaited);
  load.run_until([&] { return answered == load.size(); });
  load.on_turn = nullptr;
  double elapsed = meter.elapsed();
  print_with_others(meter, elapsed, prober.stop());
}

// How long the others waited, while a load did harm or nothing.
void print_others(std::vector<double> latencies_ms) {
  print({{"others_p50_ms", quantile(latencies_ms, 0.5)},
         {"others_p99_ms", quantile(latencies_ms, 0.99)},
         {"others_max_ms", quantile(latencies_ms, 1)}});
}

}  // namespace

void big(const Options& options) {
  Load load(options.port);
  load.greet(1);
  Big big = big_of(options);
  load.ask(load[0], big.prelude + bytes_of({request::Ping{1}}), 4);
  Prober prober(options.port);
  Meter meter(options.pid);
  load.ask(load[0], big.request, big.awaited);
  double elapsed = meter.elapsed();
  print_with_others(meter, elapsed, prober.stop());
}

void leave(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(options.connections + 100);
  std::vector<std::string_view> keys{"/never"};
  std::string wait = bytes_of({request::Wait{keys}, request::Ping{1}});
  for (std::size_t i = 0; i < 100; ++i) load.ask(load[i], wait, 4);
  Prober prober(options.port);
  Meter meter(options.pid);
  load.close_from(100);
  load.ask(load[0], bytes_of({request::Ping{1}}), 4);
  double elapsed = meter.elapsed();
  print_with_others(meter, elapsed, prober.stop());
}

void many_list_keys(const Options& options) {
  constexpr int kNames = 4000;
  const std::string long_name = "/" + options.tag + std::string(8000, 'n');
  Load load(options.port);
  load.greet(options.connections);
  std::string prelude;
  std::size_t awaited = 8 + 8 + std::string_view("init/").size();
  for (int i = 0; i < kNames; ++i) {
    encode(request::Set{long_name + std::to_string(i), "v"}, prelude);
    awaited += 8 + long_name.size() + std::to_string(i).size();
  }
  load.ask(load[0], prelude + bytes_of({request::Ping{1}}), 4);
  ask_of_all(load, options, bytes_of({request::ListKeys{}}), awaited);
  std::string clean;
  for (int i = 0; i < kNames; ++i) encode(request::DeleteKey{long_name + std::to_string(i)}, clean);
  load.ask(load[0], clean, kNames * 8);
}

void many_compare_set(const Options& options) {
  Load load(options.port);
  load.greet(options.connections);
  const std::string large(kLargeBytes, 'v');
  std::string other = large;
  other.back() = 'o';
  const std::string name = "/big" + options.tag;
  load.ask(load[0], bytes_of({request::Set{name, large}, request::Ping{1}}), 4);
  ask_of_all(load, options, bytes_of({request::CompareSet{name, large, other}}), 8 + large.size());
  load.ask(load[0], bytes_of({request::DeleteKey{name}}), 8);
}

void leave_waiting(const Options& options) {
  constexpr int kNames = 4000;
  std::vector<std::string> names = names_of(options, kNames);
  std::vector<std::string_view> keys(names.begin(), names.end());
  std::string wait = bytes_of({request::Wait{keys}, request::Ping{1}});
  Load load(options.port, options.sources);
  load.greet(options.connections + 1);
  for (std::size_t i = 1; i < load.size(); ++i) load.ask(load[i], wait, 4);
  Prober prober(options.port);
  Meter meter(options.pid);
  load.close_from(1);
  load.ask(load[0], bytes_of({request::Ping{1}}), 4);
  load.run_for(static_cast<int>(options.seconds * 1e3));
  double elapsed = meter.elapsed();
  print_with_others(meter, elapsed, prober.stop());
}

void wake_many(const Options& options) {
  constexpr std::size_t kWaits = 64;  // that one connection may have
  const std::string name = "/many" + options.tag;
  std::vector<std::string_view> keys{name};
  std::string waits;
  for (std::size_t i = 0; i < kWaits; ++i) encode(request::Wait{keys}, waits);
  Load load(options.port, options.sources);
  load.greet(options.connections + 1);
  for (std::size_t i = 1; i < load.size(); ++i)
    load.ask(load[i], waits + bytes_of({request::Ping{1}}), 4);
  Prober prober(options.port);
  Meter meter(options.pid);
  for (std::size_t i = 1; i < load.size(); ++i) load.send(load[i], "", kWaits);
  std::size_t answered = 0;
  load.on_turn = [&](Connection&) { ++answered; };
  load.send(load[0], bytes_of({request::Set{name, "v"}, request::Ping{1}}), 4);
  load.run_until([&] { return answered == load.size(); });
  double elapsed = meter.elapsed();
  print_with_others(meter, elapsed, prober.stop());
}

void append_read(const Options& options) {
  constexpr int kPieces = 64;
  const std::string name = "/long" + options.tag;
  const std::string piece(kLargeBytes, 'v');
  Load load(options.port);
  load.greet(2);
  for (int i = 0; i < kPieces; ++i)
    load.ask(load[0], bytes_of({request::Append{name, piece}, request::Ping{1}}), 4);
  Prober prober(options.port);
  Meter meter(options.pid);
  load.send(load[1], bytes_of({request::Get{name}}), 8 + kPieces * piece.size());
  load.ask(load[0], bytes_of({request::Append{name, "x"}, request::Ping{1}}), 4);
  double elapsed = meter.elapsed();
  load.close_from(1);
  load.ask(load[0], bytes_of({request::Ping{1}}), 4);
  std::vector<double> latencies_ms = prober.stop();
  load.ask(load[0], bytes_of({request::DeleteKey{name}}), 8);
  print_with_others(meter, elapsed, std::move(latencies_ms));
}

void garbage(const Options& options) {
  std::string bytes;
  for (int i = 0; i < 64 * 1024; ++i) bytes += static_cast<char>(i * 37 + i / 251 + 200);
  Prober prober(options.port);
  Load load(options.port, options.sources);
  Meter meter(options.pid);
  double connection_count = 0;
  while (meter.elapsed() < options.seconds) {
    for (int i = 0; i < options.connections; ++i, ++connection_count) {
      Connection& connection = load.connect();
      connection.may_be_closed = true;
      load.send(connection, bytes, 0);
    }
    load.run_for(1);
    load.close_from(0);
  }
  double elapsed = meter.elapsed();
  std::vector<double> latencies_ms = prober.stop();
  print({{"others_p50_ms", quantile(latencies_ms, 0.5)},
         {"others_p99_ms", quantile(latencies_ms, 0.99)},
         {"others_max_ms", quantile(latencies_ms, 1)},
         {"bad_connections_per_second", connection_count / elapsed}});
}

void nobody(const Options& options) {
  Load load(options.port);
  Prober prober(options.port);
  load.run_for(static_cast<int>(options.seconds * 1e3));
  print_others(prober.stop());
}

void byte_a_second(const Options& options) {
  constexpr std::size_t kLeastBytes = 5;
  Load load(options.port, options.sources);
  load.greet(options.connections);
  std::string bytes = bytes_of({request::Set{"/slow" + options.tag, "value"}});
  std::size_t count = std::max(kLeastBytes, static_cast<std::size_t>(options.seconds));
  Prober prober(options.port);
  for (std::size_t sent = 0; sent < std::min(count, bytes.size()); ++sent) {
    for (std::size_t i = 0; i < load.size(); ++i) load.send(load[i], bytes.substr(sent, 1), 0);
    load.run_for(1000);
  }
  print_others(prober.stop());
}

// For less than the 30 s after which ours closes them.
void half_open(const Options& options) {
  Load load(options.port, options.sources);
  std::string half = bytes_of({request::Validate{}}).substr(0, 2);
  std::size_t connected = 0;
  for (int i = 0; i < options.connections; ++i) load.send(load.connect(), half, 0);
  load.run_until([&] {  // all have connected
    while (connected < load.size() && load[connected].output.empty()) ++connected;
    return connected == load.size();
  });
  load.greet(1);  // and have been accepted before this one
  Prober prober(options.port);
  load.run_for(static_cast<int>(options.seconds * 1e3));
  print_others(prober.stop());
}

void never_reads(const Options& options) {
  constexpr std::size_t kAskedBytes = 1 << 20;
  constexpr int kAskedTimes = 100;
  std::string name = "/much" + options.tag;
  Load load(options.port);
  load.greet(1);
  load.ask(load[0], bytes_of({request::Set{name, std::string(kAskedBytes, 'v')}, request::Ping{1}}),
           4);
  std::string asks = bytes_of({request::Validate{}});
  for (int i = 0; i < kAskedTimes; ++i) encode(request::Get{name}, asks);
  double before = resident_bytes(options.pid);
  Prober prober(options.port);
  Load mute(options.port);
  for (int i = 0; i < options.connections; ++i) {
    Connection& connection = mute.connect();
    connection.may_be_closed = true;
    mute.send(connection, asks, std::size_t{1} << 40);
  }
  // mute is not run, so nothing is read; what connect() left unsent goes out here.
  auto begin = Clock::now();
  while (seconds_since(begin) < options.seconds) {
    for (std::size_t i = 0; i < mute.size(); ++i) mute.send(mute[i], "", 0);
    load.run_for(10);
  }
  double grown = resident_bytes(options.pid) - before;
  std::vector<double> latencies_ms = prober.stop();
  print({{"others_p50_ms", quantile(latencies_ms, 0.5)},
         {"others_p99_ms", quantile(latencies_ms, 0.99)},
         {"others_max_ms", quantile(latencies_ms, 1)},
         {"grown_mib", grown / double(1 << 20)}});
}

}  // namespace ddprun::bench
