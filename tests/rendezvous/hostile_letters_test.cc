// SPDX-License-Identifier: BSD-3-Clause
//
// Letters of nodes that lie and contradict themselves, in any order, through the fuzz target's own
// checks.  scripts/fuzz goes on where this ends.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

TEST_CASE("Hostile letters: any of them, in any order, leave nothing behind") {
  std::mt19937_64 random(20261124);
  for (int round = 0; round < 1000; ++round) {
    std::string input(random() % 1500, '\0');
    for (char& byte : input) byte = static_cast<char>(random() % (round % 2 == 0 ? 256 : 24));
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  }
}
