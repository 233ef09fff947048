// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/macros.h"

#include <doctest/doctest.h>

using ddprun::agent::substitute;

TEST_SUITE("agent/decide/macros") {
  TEST_CASE("the rules are those of Python's string.Template.safe_substitute") {
    ddprun::agent::Macros macros = {{"local_rank", "3"}, {"rank", "11"}};
    CHECK(substitute("--gpu=${local_rank}", macros) == "--gpu=3");
    CHECK(substitute("$local_rank,$rank", macros) == "3,11");
    CHECK(substitute("$local_ranks ${local_ranks}", macros) == "$local_ranks ${local_ranks}");
    CHECK(substitute("$$rank costs 5$", macros) == "$rank costs 5$");
    CHECK(substitute("${rank ${}$1$", macros) == "${rank ${}$1$");
    CHECK(substitute("${$rank}", macros) == "${11}");
    CHECK(substitute("", macros).empty());
  }
}
