// SPDX-License-Identifier: BSD-3-Clause
//
// The clients of a load test: many connections to one server, plain bytes, one thread, one epoll.
// Replies are counted and not looked at, so that the clients cost as little as can be.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/fd.h"
#include "store/decide/wire.h"
#include "store/socket.h"

namespace ddprun::bench {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin);

// The bytes of these requests, one behind the other.
std::string bytes_of(std::initializer_list<store::Request> requests);

// A connection that is told what to send, and how many bytes to await before its next turn.
struct Connection {
  Fd fd;
  std::size_t index = 0;  // among those of its Load
  std::string output;
  std::size_t sent = 0;
  std::size_t awaited = 0;  // bytes of replies still to come
  std::size_t turn = 0;     // free for the scenario
  Clock::time_point began{};
  bool wants_room = false;
  bool may_be_closed = false;  // by the server, without complaint
};

// All connections of one thread.  What should not happen ends the process with one line.
class Load {
 public:
  // `source_count` addresses from 127.0.0.2 on are used in turn; with 1, 127.0.0.1 is.
  explicit Load(std::uint16_t port, int source_count = 1);

  // Called when a connection has all that it awaited.
  std::function<void(Connection&)> on_turn;

  Connection& connect();

  // Sends, and awaits so many bytes more.
  void send(Connection& connection, std::string_view bytes, std::size_t awaited);

  // Runs until `is_done`; two minutes without a byte are a failure.
  void run_until(const std::function<bool()>& is_done);

  // Does what is ready now, and waits so long for it.
  void run_for(int milliseconds);

  // Sends, and runs until all of the reply is there.
  void ask(Connection& connection, std::string_view bytes, std::size_t awaited);

  // Opens so many connections that have shaken hands, as torch's client does: VALIDATE, PING, ADD.
  void greet(int count);

  // Closes them all, from `first` on.
  void close_from(std::size_t first) { connections_.resize(first); }

  Connection& operator[](std::size_t index) { return *connections_[index]; }
  std::size_t size() const { return connections_.size(); }

 private:
  bool run_once(int timeout_ms);
  void flush(Connection& connection);
  void want_room(Connection& connection, bool wants);
  void receive(Connection& connection);
  void lose(Connection& connection);

  std::uint16_t port_;
  int source_count_;
  Fd epoll_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::array<char, 256 * 1024> input_;
};

}  // namespace ddprun::bench
