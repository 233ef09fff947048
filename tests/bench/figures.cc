// SPDX-License-Identifier: BSD-3-Clause
#include "tests/bench/figures.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "store/base/check.h"

namespace ddprun::bench {
namespace {

double clock_seconds(clockid_t clock) {
  timespec time{};
  check(::clock_gettime(clock, &time) == 0, "cannot read a processor's clock");
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

double cpu_seconds(int pid) {
  clockid_t clock{};
  check(::clock_getcpuclockid(pid, &clock) == 0, "the server has gone");
  return clock_seconds(clock);
}

}  // namespace

Meter::Meter(int server_pid)
    : pid_(server_pid),
      server_begin_(cpu_seconds(server_pid)),
      own_begin_(clock_seconds(CLOCK_PROCESS_CPUTIME_ID)) {}

double Meter::server_cpu() const {
  return cpu_seconds(pid_) - server_begin_;
}

double Meter::own_cpu() const {
  return clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - own_begin_;
}

double resident_bytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * double(::sysconf(_SC_PAGESIZE));
}

double quantile(std::vector<double>& values, double share) {
  check(!values.empty(), "nothing was measured");
  std::sort(values.begin(), values.end());
  return values[std::size_t(share * double(values.size() - 1))];
}

void print(std::initializer_list<Figure> figures) {
  for (const Figure& figure : figures) std::printf("%s=%.3f ", figure.name, figure.value);
  std::printf("\n");
}

void print_once(const Meter& meter, double elapsed) {
  print({{"ms", elapsed * 1e3},
         {"cpu_ms", meter.server_cpu() * 1e3},
         {"client_cpu_ms", meter.own_cpu() * 1e3}});
}

}  // namespace ddprun::bench
