// SPDX-License-Identifier: BSD-3-Clause
//
// A load generator for a TCPStore server, ours or torch's.  It plays one scenario and prints one
// line of figures; scripts/bench/store repeats and compares.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/bench/scenarios.h"

using namespace ddprun::bench;

namespace {

const std::map<std::string, void (*)(const Options&)> kScenarios = {
    {"get", steady},
    {"set", steady},
    {"add", steady},
    {"check", steady},
    {"set_wait_get", steady},
    {"multi_get", steady},
    {"multi_set", steady},
    {"storm", storm},
    {"barrier", barrier},
    {"add_barrier", add_barrier},
    {"wake", wake},
    {"all_gather", all_gather},
    {"cancel", cancel},
    {"vanish", vanish},
    {"big_check", big},
    {"big_compare_set", big},
    {"big_multi_set", big},
    {"big_multi_get", big},
    {"big_wait", big},
    {"big_list_keys", big},
    {"big_multi_set_keys", big},
    {"leave", leave},
    {"many_list_keys", many_list_keys},
    {"many_compare_set", many_compare_set},
    {"leave_waiting", leave_waiting},
    {"wake_many", wake_many},
    {"append_read", append_read},
    {"garbage", garbage},
    {"nobody", nobody},
    {"byte_a_second", byte_a_second},
    {"half_open", half_open},
    {"never_reads", never_reads},
    {"idle_memory", idle_memory},
    {"key_memory", key_memory},
};

int refuse(const std::string& what) {
  std::fprintf(stderr, "store_load: %s\n", what.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 8) {
    return refuse("usage: store_load PORT PID SCENARIO [CONNECTIONS [DEPTH [SECONDS [SOURCES]]]]");
  }
  Options options;
  options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  options.pid = std::atoi(argv[2]);
  options.scenario = argv[3];
  if (argc > 4) options.connections = std::atoi(argv[4]);
  if (argc > 5) options.depth = std::atoi(argv[5]);
  if (argc > 6) options.seconds = std::atof(argv[6]);
  if (argc > 7) options.sources = std::atoi(argv[7]);
  options.tag = "-" + std::to_string(::getpid()) + "-";
  auto scenario = kScenarios.find(options.scenario);
  if (scenario == kScenarios.end()) return refuse("unknown scenario " + options.scenario);
  if (options.connections < 1 || options.depth < 1 || options.seconds <= 0 || options.sources < 1) {
    return refuse("CONNECTIONS, DEPTH, SECONDS and SOURCES are above 0");
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  scenario->second(options);
}
