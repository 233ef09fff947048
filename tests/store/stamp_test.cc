// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/stamp.h"

#include <doctest/doctest.h>

#include <string>

using namespace ddprun::store;

namespace {

// "text|address"
std::string taken(std::string text) {
  auto host = take_stamp(text);
  return text + "|" + host.value_or("none");
}

}  // namespace

TEST_SUITE("store/decide/stamp") {
  TEST_CASE("a stamp is taken off as it was put on") {
    CHECK(taken(stamped("text", "10.0.0.7")) == "text|10.0.0.7");
    CHECK(taken(stamped("", "fe80::1")) == "|fe80::1");
    CHECK(taken("text") == "text|none");
  }

  TEST_CASE("what a client has written itself is part of the text") {
    CHECK(taken(stamped("text\nfrom 10.0.0.8", "10.0.0.7")) == "text\nfrom 10.0.0.8|10.0.0.7");
    CHECK(taken(stamped("\nfrom \nfrom ", "10.0.0.7")) == "\nfrom \nfrom |10.0.0.7");
  }
}
