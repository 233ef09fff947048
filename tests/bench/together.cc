// SPDX-License-Identifier: BSD-3-Clause
#include "tests/bench/scenarios.h"

namespace ddprun::bench {
using namespace store;

namespace {

// Everybody sends `bytes`, and then has all of `awaited`.
void together(Load& load, const std::string& bytes, std::size_t awaited) {
  std::size_t done = 0;
  load.on_turn = [&](Connection&) { ++done; };
  for (std::size_t i = 0; i < load.size(); ++i) load.send(load[i], bytes, awaited);
  load.run_until([&] { return done == load.size(); });
}

// Everybody but the first waits for `key`, and the server knows it.
void wait_for(Load& load, const std::string& key) {
  std::vector<std::string_view> keys{key};
  std::string bytes = bytes_of({request::Wait{keys}, request::Ping{1}});
  std::size_t done = 0;
  load.on_turn = [&](Connection&) { ++done; };
  for (std::size_t i = 1; i < load.size(); ++i) load.send(load[i], bytes, 4);
  load.run_until([&] { return done == load.size() - 1; });
}

}  // namespace

void storm(const Options& options) {
  Load load(options.port, options.sources);
  Meter meter(options.pid);
  load.greet(options.connections);
  print_once(meter, meter.elapsed());
}

void barrier(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(options.connections);
  Meter meter(options.pid);
  together(load, bytes_of({request::Barrier{"/barrier" + options.tag, options.connections}}), 1);
  print_once(meter, meter.elapsed());
}

void add_barrier(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(options.connections);
  std::string last = "/last" + options.tag;
  std::vector<std::string_view> keys{last};
  std::string add = bytes_of({request::Add{"/members" + options.tag, 1}});
  std::string wait = bytes_of({request::Wait{keys}});
  std::string set = bytes_of({request::Set{last, "1"}});
  std::size_t come = 0, done = 0;
  load.on_turn = [&](Connection& connection) {
    if (connection.turn++ > 0) {
      ++done;
    } else {
      load.send(connection, ++come == load.size() ? set + wait : wait, 1);
    }
  };
  Meter meter(options.pid);
  for (std::size_t i = 0; i < load.size(); ++i) load.send(load[i], add, 8);
  load.run_until([&] { return done == load.size(); });
  print_once(meter, meter.elapsed());
}

void wake(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(options.connections + 1);
  std::string flag = "/flag" + options.tag;
  wait_for(load, flag);
  std::size_t done = 0;
  load.on_turn = [&](Connection&) { ++done; };
  for (std::size_t i = 1; i < load.size(); ++i) load[i].awaited = 1;
  Meter meter(options.pid);
  load.send(load[0], bytes_of({request::Set{flag, "v"}, request::Ping{1}}), 4);
  load.run_until([&] { return done == load.size(); });
  print_once(meter, meter.elapsed());
}

void all_gather(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(options.connections);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < load.size(); ++i) {
    names.push_back("/rank" + options.tag + std::to_string(i));
  }
  std::vector<std::string_view> keys(names.begin(), names.end());
  std::string wait = bytes_of({request::Wait{keys}});
  std::string get = bytes_of({request::MultiGet{keys}});
  std::string value(kValueBytes, 'v');
  std::size_t done = 0;
  load.on_turn = [&](Connection& connection) {
    if (connection.turn++ > 0) {
      ++done;
    } else {
      load.send(connection, get, load.size() * (8 + kValueBytes));
    }
  };
  Meter meter(options.pid);
  for (std::size_t i = 0; i < load.size(); ++i) {
    load.send(load[i], bytes_of({request::Set{names[i], value}}) + wait, 1);
  }
  load.run_until([&] { return done == load.size(); });
  print_once(meter, meter.elapsed());
}

void cancel(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(options.connections + 1);
  wait_for(load, "/never" + options.tag);
  std::size_t done = 0;
  load.on_turn = [&](Connection&) { ++done; };
  Meter meter(options.pid);
  for (std::size_t i = 1; i < load.size(); ++i) {
    load.send(load[i], bytes_of({request::CancelWait{}}), 1);
  }
  load.run_until([&] { return done == load.size() - 1; });
  print_once(meter, meter.elapsed());
}

void vanish(const Options& options) {
  Load load(options.port, options.sources);
  load.greet(options.connections + 1);
  wait_for(load, "/never" + options.tag);
  Meter meter(options.pid);
  load.close_from(1);
  load.ask(load[0], bytes_of({request::Ping{1}}), 4);
  print_once(meter, meter.elapsed());
}

}  // namespace ddprun::bench
