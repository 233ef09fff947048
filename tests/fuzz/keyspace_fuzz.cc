// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes as a program of requests, played on the keyspace and on the simple model of it
// (tests/support/keyspace_model.h); both must answer alike.  scripts/fuzz builds and runs it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "store/base/check.h"
#include "tests/support/keyspace_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::size_t used = 0;
  auto next_byte = [&] { return used < size ? data[used++] : 0; };
  auto pick = [&](std::size_t count) -> std::size_t {
    auto number = static_cast<std::size_t>(next_byte());
    if (count > 256) number = number * 256 + static_cast<std::size_t>(next_byte());
    return number % count;
  };
  ddprun::test::KeyspaceProgram program(pick);
  while (used < size) {
    std::string difference = program.step();
    ddprun::check(difference.empty(), difference.c_str());
  }
  std::string rest = program.finish();
  ddprun::check(rest.empty(), rest.c_str());
  return 0;
}
