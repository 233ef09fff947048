// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/text.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

using ddprun::last_state_of;
using ddprun::printable;
using namespace std::string_view_literals;

TEST_SUITE("store/base/text") {
  TEST_CASE("what people write stays as it is") {
    for (std::string_view text :
         {""sv, "node7"sv, "a b"sv, "caf\u00e9 \u4e2d \U0001f600"sv, "\\x1b"sv})
      CHECK(printable(text) == text);
  }

  TEST_CASE("what a terminal obeys is written out") {
    CHECK(printable("\x1b[2Jx") == "\\x1b[2Jx");
    CHECK(printable("a\r\nb\t\x7f") == "a\\x0d\\x0ab\\x09\\x7f");
    CHECK(printable("\0"sv) == "\\x00");
    CHECK(printable("\u009b2J") == "\\xc2\\x9b2J");
    CHECK(printable("\u202egnp.exe") == "\\xe2\\x80\\xaegnp.exe");
    CHECK(printable("\u061c\u206a") == "\\xd8\\x9c\\xe2\\x81\\xaa");
    CHECK(printable("\u2028") == "\\xe2\\x80\\xa8");
  }

  TEST_CASE("ends of lines and tabs stay where lines are wanted") {
    CHECK(printable("a\n\tb\r\x1b", true) == "a\n\tb\\x0d\\x1b");
  }

  TEST_CASE("of a line that was written over, the last state is left") {
    CHECK(last_state_of("  0%\r 50%\r100%") == "100%");
    CHECK(last_state_of("done\r\r") == "done");
    CHECK(last_state_of("as it is") == "as it is");
    CHECK(last_state_of("\r") == "");
  }

  TEST_CASE("what is no UTF-8 is written out byte by byte") {
    CHECK(printable("\xff\xfe") == "\\xff\\xfe");
    CHECK(printable("\xc3") == "\\xc3");  // cut
    CHECK(printable("\xc3(") == "\\xc3(");
    CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");  // longer than needed
    CHECK(printable("\xe0\x80\x9b") == "\\xe0\\x80\\x9b");
    CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
    CHECK(printable("\xf5\x80\x80\x80") == "\\xf5\\x80\\x80\\x80");
    CHECK(printable("\x9b") == "\\x9b");
  }
}
