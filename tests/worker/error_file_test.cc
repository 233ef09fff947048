// SPDX-License-Identifier: BSD-3-Clause
#include "worker/error_file.h"

#include <doctest/doctest.h>

using namespace ddprun::worker;

TEST_SUITE("worker/error_file") {
  TEST_CASE("torch's nested form is read") {
    auto report = parse_error_file(
        R"({"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback\n x", "timestamp": "1763733600"}}})");
    REQUIRE(report.has_value());
    CHECK(report->message == "ValueError: boom");
    CHECK(report->traceback == "Traceback\n x");
    CHECK(report->timestamp == 1763733600);
  }

  TEST_CASE("the flat form is read") {
    auto report = parse_error_file(R"({"message": "boom", "timestamp": 5})");
    REQUIRE(report.has_value());
    CHECK(report->message == "boom");
    CHECK(report->timestamp == 5);
  }

  TEST_CASE("what is no error file is none") {
    for (const char* text :
         {"", "{", "[]", "7", "{}", R"({"message": 7})", R"({"message": {"mess)"}) {
      CAPTURE(text);
      CHECK_FALSE(parse_error_file(text).has_value());
    }
    CHECK(parse_error_file(R"({"message": {"message": 1, "extraInfo": 2}})").has_value());
  }

  TEST_CASE("what is written is read back, bytes that are not UTF-8 included") {
    std::string text = to_error_file({"boom \xff", "trace", 9}, 3);
    CHECK(text.find(R"("errorCode":3)") != std::string::npos);
    auto report = parse_error_file(text);
    REQUIRE(report.has_value());
    CHECK(report->message.starts_with("boom "));
    CHECK(report->traceback == "trace");
    CHECK(report->timestamp == 9);
  }
}
