// SPDX-License-Identifier: BSD-3-Clause
//
// Good, damaged and hostile streams of clients by the thousand, through the fuzz target's own
// checks.  scripts/fuzz goes on where this ends.
#include <doctest/doctest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "store/decide/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace ddprun::store;

// One request of each kind, as it goes over the wire.
std::vector<std::string> frames() {
  using namespace request;
  static constexpr std::array<std::string_view, 2> kKeys{"k", "l"};
  static constexpr std::array<KeyValue, 2> kPairs{{{"k", "v"}, {"l", ""}}};
  const std::vector<Request> requests = {
      Set{"k", "v"},
      CompareSet{"k", "", "v"},
      Get{"k"},
      Add{"n", 1},
      Check{kKeys},
      Wait{kKeys},
      GetNumKeys{},
      DeleteKey{"k"},
      Append{"k", "w"},
      MultiGet{kKeys},
      MultiSet{kPairs},
      CancelWait{},
      Ping{7},
      QueuePush{"q", "x"},
      QueuePop{"q"},
      QueueLen{"q"},
      ListKeys{},
      Barrier{"b", 2},
      Probe{},
      LastWill{"q", "x"},
      ClearLastWill{},
      QueueTake{"q", 50},
      EnterNamespace{"s"},
      Expect{"me", 1},
  };
  std::vector<std::string> all;
  for (const Request& request : requests) encode(request, all.emplace_back());
  return all;
}

void play(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

}  // namespace

TEST_SUITE("store/hostile_streams") {
  TEST_CASE("streams of good requests, with some bytes changed, leave nothing behind") {
    const std::vector<std::string> good = frames();
    std::mt19937_64 random(20261122);
    for (int round = 0; round < 4000; ++round) {
      std::string input;
      for (std::size_t i = 0, count = 1 + random() % 40; i < count; ++i) {
        const std::string& frame = good[random() % good.size()];
        // Cut anywhere, and from any of the clients.
        std::size_t sent = 0;
        while (sent < frame.size()) {
          std::size_t piece = 1 + random() % (frame.size() - sent);
          input += static_cast<char>(i % 3);
          input += static_cast<char>(piece);
          input += frame.substr(sent, piece);
          sent += piece;
        }
      }
      for (std::size_t i = random() % 4; i > 0; --i) {
        input[random() % input.size()] = static_cast<char>(random());
      }
      play(input);
    }
  }

  TEST_CASE("streams of any bytes leave nothing behind") {
    std::mt19937_64 random(1);
    for (int round = 0; round < 4000; ++round) {
      std::string input(random() % 600, '\0');
      for (char& byte : input) byte = static_cast<char>(random() % (round % 2 ? 256 : 20));
      play(input);
    }
  }
}
