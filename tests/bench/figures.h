// SPDX-License-Identifier: BSD-3-Clause
//
// What a scenario of the load test is told, and what it measures: wall time, and the processor time
// and memory of the server, which is another process.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/bench/load.h"

namespace ddprun::bench {

// The size of the values that scenarios set, unless they say otherwise.
inline constexpr std::size_t kValueBytes = 64;

struct Options {
  std::uint16_t port = 0;
  int pid = 0;  // the server's
  std::string scenario;
  int connections = 1;
  int depth = 1;         // requests in flight on a connection
  double seconds = 1.0;  // how long a steady scenario lasts
  int sources = 1;       // addresses that connections come from
  std::string tag;       // a part of names that must be new to the server
};

// Wall time, and processor time of the server and of this process, since it was made; in seconds.
class Meter {
 public:
  explicit Meter(int server_pid);

  double elapsed() const { return seconds_since(begin_); }
  double server_cpu() const;
  double own_cpu() const;

 private:
  int pid_;
  Clock::time_point begin_ = Clock::now();
  double server_begin_, own_begin_;
};

// The memory that a process holds, in bytes.
double resident_bytes(int pid);

// The value at `share` (0 to 1) of the way from the smallest to the largest; sorts `values`.
double quantile(std::vector<double>& values, double share);

struct Figure {
  const char* name;
  double value;
};

// Prints them as "name=value name=value"; scripts/bench/store reads that.
void print(std::initializer_list<Figure> figures);

// How long something took, what the server spent on it, and how busy the two sides were.
void print_once(const Meter& meter, double elapsed);

}  // namespace ddprun::bench
