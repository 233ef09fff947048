// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/warm_priority.h"

#include <doctest/doctest.h>

#include <vector>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

std::vector<int> values(int own) {
  std::vector<int> all;
  for (Duration spent : {0s, 19s, 20s, 40s, 60s, 1000s}) all.push_back(template_nice(spent, own));
  return all;
}

}  // namespace

TEST_SUITE("agent/decide/warm_priority") {
  TEST_CASE("a template that takes long gets more of the node, step by step") {
    CHECK(values(0) == std::vector{19, 19, 10, 5, 0, 0});
    CHECK(values(5) == std::vector{19, 19, 15, 10, 5, 5});
    CHECK(values(-5) == std::vector{19, 19, 5, 0, -5, -5});
  }

  TEST_CASE("never less than at first") {
    CHECK(values(12) == std::vector{19, 19, 19, 17, 12, 12});
    CHECK(values(19) == std::vector{19, 19, 19, 19, 19, 19});
  }
}
