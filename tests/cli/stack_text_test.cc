// SPDX-License-Identifier: BSD-3-Clause
#include "cli/stack_text.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace ddprun::cli;

namespace {

Json worker(int rank, const char* in, const char* place) {
  return {{"rank", rank}, {"pid", 100 + rank},
          {"in", in},     {"place", place},
          {"doing", "x"}, {"frames", {"read (io.py:1)", "load (data.py:40)"}}};
}

Json page_of(Json nodes) {
  return {{"number", 1},        {"rank", nullptr},    {"age_ms", 20},
          {"next_in_ms", 9980}, {"is_current", true}, {"nodes", std::move(nodes)}};
}

Json two_nodes() {
  Json first = Json::array();
  for (int rank : {2, 0, 1}) first.push_back(worker(rank, "all_reduce", "<module> (train.py:118)"));
  Json second = Json::array({worker(3, "", "load (data.py:40)")});
  return page_of(
      {{{"host", "a"}, {"has_answered", true}, {"tools", {"py-spy"}}, {"stacks", first}},
       {{"host", "b"}, {"has_answered", true}, {"tools", {"py-spy"}}, {"stacks", second}}});
}

}  // namespace

TEST_SUITE("cli/stack_text") {
  TEST_CASE("workers at one place are one line, the largest group first") {
    CHECK(stack_lines(two_nodes(), std::nullopt) ==
          Lines{"ranks 0-2: all_reduce at train.py:118", "rank 3: load() at data.py:40"});
  }

  TEST_CASE("one rank has its frames") {
    CHECK(stack_lines(two_nodes(), 3) == Lines{"rank 3: load() at data.py:40",
                                               "pid 103 on b, by the kernel: x", "  read (io.py:1)",
                                               "  load (data.py:40)"});
  }

  TEST_CASE("where a worker is, by as much as is known") {
    CHECK(where_of(worker(0, "", "<module> (train.py:13)")) == "train.py:13");
    CHECK(where_of(Json{{"doing", "sleeping in nanosleep"}}) == "sleeping in nanosleep");
    CHECK(where_of(Json{{"frames", {"__poll"}}, {"waits", true}, {"doing", "x"}}) ==
          "waits for its peers, in __poll");
    CHECK(where_of(Json{{"frames", {"__poll"}}, {"waits", false}}) == "in __poll");
    CHECK(where_of(Json{{"place", "\x1b[2J"}}) == "\\x1b[2J");
    CHECK(where_of(Json(nullptr)) == "not known");
  }

  TEST_CASE("ranks") {
    CHECK(ranks_text({7}) == "rank 7");
    CHECK(ranks_text({0, 1, 2, 9}) == "ranks 0-2, 9");
    std::vector<std::int64_t> odd;
    for (int i = 0; i < 40; ++i) odd.push_back(2 * i);
    CHECK(ranks_text(odd) == "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 28 others");
  }

  TEST_CASE("a node that has not answered is named, and what a node lacks") {
    Json page =
        page_of({{{"host", "a"}, {"has_answered", false}, {"base_rank", 4}, {"workers", 2}},
                 {{"host", "b"},
                  {"has_answered", true},
                  {"tools", Json::array()},
                  {"stacks", {{{"rank", 0}, {"doing", "running"}}}}},
                 {{"host", "c"},
                  {"has_answered", true},
                  {"tools", {"py-spy"}},
                  {"stacks", {{{"rank", 1}, {"doing", "running"}, {"problem", "no right"}}}}}});
    page["age_ms"] = 4000;
    CHECK(stack_lines(page, std::nullopt) ==
          Lines{"ranks 0-1: running", "a has not answered (ranks 4-5)",
                "c: no stack of rank 1: no right",
                "no py-spy and no eu-stack on b: their lines are what the kernel says",
                "as it was 4 s ago"});
  }

  TEST_CASE("a thousand nodes that lack the same, or do not answer, fit a screen") {
    Json nodes = Json::array();
    for (int i = 0; i < 1000; ++i) {
      nodes.push_back({{"host", "n" + std::to_string(i)},
                       {"has_answered", i < 500},
                       {"tools", Json::array()},
                       {"stacks", {{{"rank", i}, {"doing", "running"}}}}});
    }
    Lines lines = stack_lines(page_of(nodes), std::nullopt);
    CHECK(lines.size() < 24);
    CHECK(lines[17] == "and 484 other nodes likewise");
    CHECK(lines.back() ==
          "no py-spy and no eu-stack on n0 and 499 other nodes: their lines are what the kernel "
          "says");
  }

  TEST_CASE("an answer is ours if it is young, of this round, and about this rank or all") {
    Json page = two_nodes();
    CHECK(answer_in(page, std::nullopt) == StackAnswer::Complete);
    CHECK(answer_in(page, 2) == StackAnswer::Complete);
    page["nodes"][1]["has_answered"] = false;
    CHECK(answer_in(page, 2) == StackAnswer::Awaited);
    page["rank"] = 2;
    CHECK(answer_in(page, 2) == StackAnswer::Awaited);
    CHECK(answer_in(page, 3) == StackAnswer::Other);
    CHECK(answer_in(page, std::nullopt) == StackAnswer::Other);
    for (const char* change : {"number", "next_in_ms"}) {
      Json other = two_nodes();
      other[change] = 0;
      CHECK(answer_in(other, std::nullopt) == StackAnswer::Other);
    }
    Json other = two_nodes();
    other["is_current"] = false;
    CHECK(answer_in(other, std::nullopt) == StackAnswer::Other);
    CHECK(answer_in(Json(1), std::nullopt) == StackAnswer::Other);
  }
}
