// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/own_names.h"

#include <doctest/doctest.h>

#include <array>

using namespace ddprun::store;

TEST_SUITE("store/decide/own_names") {
  TEST_CASE("others put nothing into its queues, and read none of its keys") {
    const OwnNames names{.queues = "/node/", .keys = "/bundle/"};
    const std::array<std::string_view, 2> keys{"/other", "/bundle/a"};
    for (const Request& request : std::initializer_list<Request>{
             request::QueuePush{"/node/a", "x"}, request::LastWill{"/node/a", "x"},
             request::Get{"/bundle/a"}, request::CompareSet{"/bundle/a", "", "x"},
             request::Append{"/bundle/a", "x"}, request::Add{"/bundle/a", 1},
             request::MultiGet{keys}, request::Check{keys}, request::Wait{keys}})
      CHECK(is_for_own_only(names, request));
    const std::array<std::string_view, 2> others{"/other", "/bundles"};
    const std::array<KeyValue, 1> pairs{KeyValue{"/bundle/a", "x"}};
    for (const Request& request : std::initializer_list<Request>{
             request::QueuePush{"/inbox/a", "x"}, request::QueuePop{"/node/a"},
             request::QueueTake{"/node/a", 1}, request::Set{"/bundle/a", "x"},
             request::MultiSet{pairs}, request::Get{"/node/a"}, request::MultiGet{others},
             request::ListKeys{}, request::Ping{1}})
      CHECK_FALSE(is_for_own_only(names, request));
  }

  TEST_CASE("without names there are none") {
    CHECK_FALSE(is_for_own_only({}, request::QueuePush{"/node/a", "x"}));
    CHECK_FALSE(is_for_own_only({}, request::Get{"/bundle/a"}));
  }
}
