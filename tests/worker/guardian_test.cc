// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/guardian.h"

#include <doctest/doctest.h>

#include <string>

using namespace ddprun::process;

TEST_SUITE("worker/process/guardian") {
  TEST_CASE("a mark is one of a list, whole, in the right variable") {
    const std::string text("PATH=/bin\0DDPRUN_AGENT=12-9,34-7\0X=5-1\0", 39);
    CHECK(has_mark(text, "34-7"));
    CHECK(has_mark(text, "12-9"));
    CHECK_FALSE(has_mark(text, "4-7"));
    CHECK_FALSE(has_mark(text, "34-"));
    CHECK_FALSE(has_mark(text, "5-1"));
    CHECK_FALSE(has_mark("", "5-1"));
    CHECK(has_mark("DDPRUN_AGENT=1-2", "1-2"));
  }

  TEST_CASE("the second mark is a soft limit") {
    CHECK(parse_queue_limit("Limit   Soft Limit  Hard Limit  Units\n"
                            "Max msgqueue size         700123               819200      bytes\n") ==
          700123);
    CHECK_FALSE(parse_queue_limit("Max msgqueue size         unlimited   unlimited   bytes\n"));
    CHECK_FALSE(parse_queue_limit("Max msgqueue size"));
    CHECK_FALSE(parse_queue_limit(""));
  }
}
