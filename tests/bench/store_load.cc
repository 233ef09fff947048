// SPDX-License-Identifier: BSD-3-Clause
//
// A load generator for a TCPStore server, ours or torch's: one thread, one epoll, plain bytes.
// It plays one scenario and prints one line of figures; scripts/bench/store repeats and compares.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "store/base/check.h"
#include "store/socket.h"
#include "store/wire.h"

using namespace ddprun::store;
using ddprun::check;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kValueBytes = 64;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The processor time that another process has used, in seconds.
double cpu_seconds_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  std::size_t field = line.rfind(')');
  unsigned long user = 0, system = 0;
  if (field == std::string::npos ||
      std::sscanf(line.c_str() + field + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                  &user, &system) != 2) {
    return 0;
  }
  return double(user + system) / double(::sysconf(_SC_CLK_TCK));
}

std::string bytes_of(std::initializer_list<Request> requests) {
  std::string bytes;
  for (const Request& request : requests) encode(request, bytes);
  return bytes;
}

// A connection that is told what to send, and how many bytes to await before it has its next turn.
struct Connection {
  UniqueFd fd;
  std::string output;
  std::size_t sent = 0;
  std::size_t awaited = 0;  // bytes of replies still to come
  std::size_t turn = 0;
  Clock::time_point began{};
  bool wants_room = false;

  bool is_waiting() const { return awaited > 0; }
};

// All connections.  `on_turn` is called when a connection has all that it awaited.
class Load {
 public:
  using OnTurn = std::function<void(Connection&)>;

  Load(std::uint16_t port, int source_count) : port_(port), source_count_(source_count) {
    check(bool(epoll_), "no epoll");
  }

  OnTurn on_turn;

  // Connects from 127.0.0.1, or in turn from 127.0.0.2 on where one address has too few ports.
  Connection& connect() {
    auto connection = std::make_unique<Connection>();
    connection->fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    int fd = connection->fd.get();
    check(fd >= 0, "out of descriptors");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    if (source_count_ > 1) {
      int one = 1;
      ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
      address.sin_addr.s_addr = htonl(
          INADDR_LOOPBACK + 1 + std::uint32_t(connections_.size() % std::size_t(source_count_)));
      check(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind");
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port_);
    int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int outcome = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    check(outcome == 0 || errno == EINPROGRESS, "connect");
    connection->wants_room = true;
    epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.ptr = connection.get()}};
    check(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    connections_.push_back(std::move(connection));
    return *connections_.back();
  }

  void send(Connection& connection, std::string_view bytes, std::size_t awaited) {
    connection.output.append(bytes);
    connection.awaited += awaited;
    connection.began = Clock::now();
    flush(connection);
  }

  // Runs until `is_done`.
  void run_until(const std::function<bool()>& is_done) {
    while (!is_done()) run_once(10'000);
  }

  void run_once(int timeout_ms) {
    std::array<epoll_event, 256> events;
    int count = ::epoll_wait(epoll_.get(), events.data(), int(events.size()), timeout_ms);
    check(count > 0 || timeout_ms < 10'000, "the server has not answered for ten seconds");
    for (int i = 0; i < count; ++i) {
      auto& connection = *static_cast<Connection*>(events[std::size_t(i)].data.ptr);
      if (events[std::size_t(i)].events & EPOLLOUT) flush(connection);
      if (events[std::size_t(i)].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(connection);
    }
  }

  std::vector<std::unique_ptr<Connection>>& connections() { return connections_; }

 private:
  void flush(Connection& connection) {
    while (connection.sent < connection.output.size()) {
      ssize_t count = ::send(connection.fd.get(), connection.output.data() + connection.sent,
                             connection.output.size() - connection.sent, MSG_NOSIGNAL);
      if (count < 0) {
        check(errno == EAGAIN || errno == ENOTCONN, "the server closed a connection");
        return want_room(connection, true);
      }
      connection.sent += std::size_t(count);
    }
    connection.output.clear();
    connection.sent = 0;
    want_room(connection, false);
  }

  void want_room(Connection& connection, bool wants) {
    if (connection.wants_room == wants) return;
    connection.wants_room = wants;
    epoll_event event{.events = EPOLLIN | (wants ? std::uint32_t(EPOLLOUT) : 0u),
                      .data = {.ptr = &connection}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
  }

  void receive(Connection& connection) {
    ssize_t count = ::recv(connection.fd.get(), input_.data(), input_.size(), 0);
    if (count < 0 && errno == EAGAIN) return;
    check(count > 0, "the server closed a connection");
    check(std::size_t(count) <= connection.awaited, "more came than was asked for");
    connection.awaited -= std::size_t(count);
    if (connection.awaited == 0 && on_turn) on_turn(connection);
  }

  std::uint16_t port_;
  int source_count_;
  UniqueFd epoll_{::epoll_create1(0)};
  std::vector<std::unique_ptr<Connection>> connections_;
  std::array<char, 256 * 1024> input_;
};

struct Options {
  std::uint16_t port = 0;
  int pid = 0;  // the server's, for its processor time
  std::string scenario;
  int connections = 1;
  int depth = 1;
  double seconds = 1.0;
  int sources = 1;
};

// Validates and greets all connections, as torch's client does.
void greet(Load& load, int count) {
  int greeted = 0;
  load.on_turn = [&](Connection&) { ++greeted; };
  std::string hello = bytes_of({request::Validate{}, request::Ping{1}, request::Add{"init/", 1}});
  for (int i = 0; i < count; ++i) load.send(load.connect(), hello, 12);
  load.run_until([&] { return greeted == count; });
}

// What a connection sends in one turn, the bytes of the replies, and the operations it counts for.
struct Turn {
  std::string bytes;
  std::size_t reply_bytes;
  int operations;
};

std::vector<Turn> turns_of(const Options& options, int client) {
  std::string key = "/key" + std::to_string(client);
  std::string value(kValueBytes, 'v');
  std::vector<std::string_view> one{key};
  auto repeated = [&](const std::string& bytes, std::size_t reply) {
    Turn turn{"", reply * std::size_t(options.depth), options.depth};
    for (int i = 0; i < options.depth; ++i) turn.bytes += bytes;
    return std::vector<Turn>{turn};
  };
  if (options.scenario == "get") return repeated(bytes_of({request::Get{key}}), 8 + kValueBytes);
  if (options.scenario == "add") return repeated(bytes_of({request::Add{"/sum" + key, 1}}), 8);
  if (options.scenario == "check") return repeated(bytes_of({request::Check{one}}), 1);
  if (options.scenario == "set") {
    auto turns = repeated(bytes_of({request::Set{key, value}}), 0);
    turns[0].bytes += bytes_of({request::Ping{1}});
    turns[0].reply_bytes = 4;
    return turns;
  }
  if (options.scenario == "set_wait_get") {
    return {{bytes_of({request::Set{key, value}, request::Wait{one}}), 1, 1},
            {bytes_of({request::Get{key}}), 8 + kValueBytes, 1}};
  }
  std::vector<std::string> names;
  for (int i = 0; i < 1024; ++i) names.push_back("/many" + std::to_string(i));
  std::vector<std::string_view> keys(names.begin(), names.end());
  if (options.scenario == "multi_get") {
    return repeated(bytes_of({request::MultiGet{keys}}), 1024 * (8 + kValueBytes));
  }
  if (options.scenario == "multi_set") {
    std::vector<KeyValue> pairs;
    for (const std::string& name : names) pairs.push_back({name, value});
    return {{bytes_of({request::MultiSet{pairs}, request::Ping{1}}), 4, 1}};
  }
  std::fprintf(stderr, "unknown scenario\n");
  std::exit(2);
}

void prepare(Load& load, const Options& options) {
  std::string value(kValueBytes, 'v');
  std::string bytes;
  for (int i = 0; i < std::max(options.connections, 1024); ++i) {
    encode(request::Set{"/key" + std::to_string(i), value}, bytes);
    encode(request::Set{"/many" + std::to_string(i), value}, bytes);
  }
  encode(request::Ping{1}, bytes);
  bool is_done = false;
  load.on_turn = [&](Connection&) { is_done = true; };
  load.send(*load.connections()[0], bytes, 4);
  load.run_until([&] { return is_done; });
}

// Every connection repeats its turns for a while.
void steady(Load& load, const Options& options) {
  greet(load, options.connections);
  prepare(load, options);
  std::vector<std::vector<Turn>> turns;
  for (int i = 0; i < options.connections; ++i) turns.push_back(turns_of(options, i));
  auto index_of = [&](const Connection& connection) { return connection.turn >> 32; };
  for (std::size_t i = 0; i < load.connections().size(); ++i) load.connections()[i]->turn = i << 32;

  std::vector<double> latencies_us;
  long operations = 0;
  bool is_over = false;
  int idle = 0;
  load.on_turn = [&](Connection& connection) {
    const auto& own = turns[index_of(connection)];
    auto step = connection.turn & 0xffffffff;
    operations += own[step % own.size()].operations;
    latencies_us.push_back(seconds_since(connection.began) * 1e6);
    ++connection.turn;
    if (is_over) {
      ++idle;
      return;
    }
    const Turn& next = own[(step + 1) % own.size()];
    load.send(connection, next.bytes, next.reply_bytes);
  };
  double cpu = cpu_seconds_of(options.pid);
  auto begin = Clock::now();
  for (auto& connection : load.connections()) {
    const Turn& first = turns[index_of(*connection)][0];
    load.send(*connection, first.bytes, first.reply_bytes);
  }
  load.run_until([&] { return seconds_since(begin) >= options.seconds; });
  double elapsed = seconds_since(begin);
  long counted = operations;
  is_over = true;
  load.run_until([&] { return idle == options.connections; });
  cpu = cpu_seconds_of(options.pid) - cpu;
  std::sort(latencies_us.begin(), latencies_us.end());
  auto quantile = [&](double q) {
    return latencies_us[std::size_t(q * double(latencies_us.size() - 1))];
  };
  std::printf("per_second=%.0f cpu_us=%.2f p50_us=%.1f p99_us=%.1f\n", double(counted) / elapsed,
              cpu * 1e6 / double(operations), quantile(0.5), quantile(0.99));
}

void report_once(const char* unit, double elapsed, double cpu) {
  std::printf("%s=%.1f cpu_ms=%.1f\n", unit, elapsed * 1e3, cpu * 1e3);
}

// Everybody connects at once and counts itself in.
void storm(Load& load, const Options& options) {
  double cpu = cpu_seconds_of(options.pid);
  auto begin = Clock::now();
  greet(load, options.connections);
  report_once("ms", seconds_since(begin), cpu_seconds_of(options.pid) - cpu);
}

// Everybody sends `bytes`, and then has all of `awaited`.
void together(Load& load, const Options& options, const std::string& bytes, std::size_t awaited) {
  greet(load, options.connections);
  int done = 0;
  load.on_turn = [&](Connection&) { ++done; };
  double cpu = cpu_seconds_of(options.pid);
  auto begin = Clock::now();
  for (auto& connection : load.connections()) load.send(*connection, bytes, awaited);
  load.run_until([&] { return done == options.connections; });
  report_once("ms", seconds_since(begin), cpu_seconds_of(options.pid) - cpu);
}

// All but one wait for a key; the one sets it.
void wake(Load& load, const Options& options) {
  greet(load, options.connections);
  std::vector<std::string_view> key{"/flag"};
  std::string waits = bytes_of({request::Wait{key}, request::Ping{1}});
  int done = 0;
  load.on_turn = [&](Connection&) { ++done; };
  for (std::size_t i = 1; i < load.connections().size(); ++i)
    load.send(*load.connections()[i], waits, 4);
  load.run_until([&] { return done == options.connections - 1; });
  done = 0;
  for (std::size_t i = 1; i < load.connections().size(); ++i) load.connections()[i]->awaited = 1;
  double cpu = cpu_seconds_of(options.pid);
  auto begin = Clock::now();
  load.send(*load.connections()[0], bytes_of({request::Set{"/flag", "v"}, request::Ping{1}}), 4);
  load.run_until([&] { return done == options.connections; });
  report_once("ms", seconds_since(begin), cpu_seconds_of(options.pid) - cpu);
}

// Each rank sets its key, waits for all, and gets all: what Gloo does to connect N ranks.
void all_gather(Load& load, const Options& options) {
  greet(load, options.connections);
  auto count = std::size_t(options.connections);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back("/rank" + std::to_string(i));
  std::vector<std::string_view> keys(names.begin(), names.end());
  std::string wait = bytes_of({request::Wait{keys}});
  std::string get = bytes_of({request::MultiGet{keys}});
  std::size_t done = 0;
  load.on_turn = [&](Connection& connection) {
    if (connection.turn++ == 0) return load.send(connection, get, count * (8 + kValueBytes));
    ++done;
  };
  double cpu = cpu_seconds_of(options.pid);
  auto begin = Clock::now();
  for (std::size_t i = 0; i < count; ++i) {
    std::string set = bytes_of({request::Set{names[i], std::string(kValueBytes, 'v')}});
    load.send(*load.connections()[i], set + wait, 1);
  }
  load.run_until([&] { return done == count; });
  report_once("ms", seconds_since(begin), cpu_seconds_of(options.pid) - cpu);
}

// A client in a thread of its own that pings all the time, and so notices when the server is busy
// with somebody else.
class Prober {
 public:
  explicit Prober(std::uint16_t port)
      : thread_([this, port] {
          Load load(port, 1);
          greet(load, 1);
          load.on_turn = [&](Connection& connection) {
            latencies_ms_.push_back(seconds_since(connection.began) * 1e3);
            load.send(connection, bytes_of({request::Ping{1}}), 4);
          };
          load.send(*load.connections()[0], bytes_of({request::Ping{1}}), 4);
          is_probing_ = true;
          load.run_until([this] { return is_over_.load(); });
        }) {
    while (!is_probing_) std::this_thread::yield();
  }

  // Ends it; answers what each ping took, in order of size.
  std::vector<double> stop() {
    is_over_ = true;
    thread_.join();
    std::sort(latencies_ms_.begin(), latencies_ms_.end());
    return latencies_ms_;
  }

 private:
  std::vector<double> latencies_ms_;
  std::atomic<bool> is_probing_ = false;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

// One client sends a legal big request, while another probes.
void big(Load& load, const Options& options) {
  greet(load, 1);
  std::vector<std::string> names;
  std::string request;
  std::size_t awaited = 0;
  std::string large(8 << 20, 'v');
  auto named = [&](int count) {
    for (int i = 0; i < count; ++i) names.push_back("/big" + std::to_string(i));
    return std::vector<std::string_view>(names.begin(), names.end());
  };
  // Keys that exist, so that all of them must be looked at.
  auto set_all = [&](const std::vector<std::string_view>& keys, const std::string& value) {
    std::string sets;
    for (std::string_view key : keys) encode(request::Set{key, value}, sets);
    encode(request::Ping{1}, sets);
    bool is_set = false;
    load.on_turn = [&](Connection&) { is_set = true; };
    load.send(*load.connections()[0], sets, 4);
    load.run_until([&] { return is_set; });
  };
  if (options.scenario == "big_check") {
    auto keys = named(131072);
    set_all(keys, "v");
    request = bytes_of({request::Check{keys}});
    awaited = 1;
  } else if (options.scenario == "big_compare_set") {
    request = bytes_of({request::CompareSet{"/big", large, large}});
    awaited = 8 + large.size();
  } else if (options.scenario == "big_multi_set") {
    std::vector<KeyValue> pairs{{"/big0", large}, {"/big1", large}};
    request = bytes_of({request::MultiSet{pairs}, request::Ping{1}});
    awaited = 4;
  } else {
    auto keys = named(8192);
    set_all(keys, std::string(4096, 'v'));
    request = bytes_of({request::MultiGet{keys}});
    awaited = 8192 * (8 + 4096);
  }
  bool is_done = false;
  load.on_turn = [&](Connection&) { is_done = true; };
  Prober prober(options.port);
  double cpu = cpu_seconds_of(options.pid);
  auto begin = Clock::now();
  load.send(*load.connections()[0], request, awaited);
  load.run_until([&] { return is_done; });
  double elapsed = seconds_since(begin);
  cpu = cpu_seconds_of(options.pid) - cpu;
  std::vector<double> latencies_ms = prober.stop();
  std::printf("ms=%.1f cpu_ms=%.1f others_p99_ms=%.2f others_max_ms=%.2f\n", elapsed * 1e3,
              cpu * 1e3, latencies_ms[latencies_ms.size() * 99 / 100], latencies_ms.back());
}

void play(const Options& options) {
  Load load(options.port, options.sources);
  const std::string& name = options.scenario;
  if (name == "storm") return storm(load, options);
  if (name == "wake") return wake(load, options);
  if (name == "all_gather") return all_gather(load, options);
  if (name.starts_with("big_")) return big(load, options);
  if (name == "barrier") {
    return together(load, options, bytes_of({request::Barrier{"/barrier", options.connections}}),
                    1);
  }
  steady(load, options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: store_load PORT PID SCENARIO [CONNECTIONS [DEPTH [SECONDS [SOURCES]]]]\n");
    return 2;
  }
  Options options;
  options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  options.pid = std::atoi(argv[2]);
  options.scenario = argv[3];
  if (argc > 4) options.connections = std::atoi(argv[4]);
  if (argc > 5) options.depth = std::atoi(argv[5]);
  if (argc > 6) options.seconds = std::atof(argv[6]);
  if (argc > 7) options.sources = std::atoi(argv[7]);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  play(options);
}
