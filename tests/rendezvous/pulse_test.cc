// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/pulse.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

std::string seen(const std::string& run, const std::vector<std::string>& alone) {
  return pulse_for(run, encode_pulse(MonoTime(std::chrono::nanoseconds(17)), alone));
}

}  // namespace

TEST_CASE("a pulse is the time, and says of each run whether too few nodes are heard") {
  CHECK(seen("job", {}) == "17");
  CHECK(seen("job", {"other", "job 2"}) == "17");
  CHECK(seen("job", {"job"}) == "17 alone");
  CHECK(seen("job", {"other", "job", "job 2"}) == "17 alone");
  CHECK(seen("job 2", {"other", "job", "job 2"}) == "17 alone");
  CHECK(seen("jo", {"job"}) == "17");
}

TEST_CASE("a pulse with the names of too many runs renews no lease at all") {
  std::vector<std::string> alone(1000, std::string(100, 'x'));
  CHECK(seen("job", alone) == "17 alone");
  CHECK(encode_pulse(MonoTime(), alone).size() < 100);
}

TEST_CASE("a pulse of a coordinator whose runs have one host is a counter") {
  CHECK(pulse_for("job", "4711") == "4711");
}
