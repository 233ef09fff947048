// SPDX-License-Identifier: BSD-3-Clause
//
// What the workers of other nodes draw, on its way to the host: each slice once, and strangers.
#include "rendezvous/decide/drawn_slices.h"

#include <doctest/doctest.h>

#include <string>

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

TraceEvent slice(const std::string& name, int local_rank = 0) {
  return {.kind = TraceEvent::Kind::Slice,
          .at = WallTime(1763733600250ms),
          .until = WallTime(1763733601500ms),
          .thread = local_rank,
          .name = name,
          .facts = {{"step", "1200"}}};
}

std::vector<std::string> names(const std::vector<TraceEvent>& events) {
  std::vector<std::string> names;
  for (const TraceEvent& event : events) names.push_back(event.name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE("rendezvous/drawn_slices") {
  TEST_CASE("each slice is taken once, however often the host looks") {
    SliceBook book;
    SliceWatch watch;
    CHECK(watch.news("a.1", "").empty());
    book.add(slice("checkpoint", 3));
    auto first = watch.news("a.1", book.text());
    REQUIRE(first.size() == 1);
    CHECK(first[0].kind == TraceEvent::Kind::Slice);
    CHECK(first[0].thread == 3);
    CHECK(first[0].at == WallTime(1763733600250ms));
    CHECK(first[0].until == WallTime(1763733601500ms));
    CHECK(first[0].facts == decltype(first[0].facts){{"step", "1200"}});
    CHECK(watch.news("a.1", book.text()).empty());
    book.add(slice("eval"));
    book.add(slice("checkpoint"));
    CHECK(names(watch.news("a.1", book.text())) == Names{"eval", "checkpoint"});
    // Another node, and the same one after it has gone.
    CHECK(watch.news("b.1", book.text()).size() == 3);
    watch.forget("a.1");
    CHECK(watch.news("a.1", book.text()).size() == 3);
  }

  TEST_CASE("what nobody has looked at in time is counted") {
    SliceBook book;
    SliceWatch watch;
    book.add(slice("seen"));
    CHECK(watch.news("a.1", book.text()).size() == 1);
    for (std::size_t i = 0; i < kMaxSlices + 5; ++i) book.add(slice("one"));
    auto news = watch.news("a.1", book.text());
    REQUIRE(news.size() == kMaxSlices + 1);
    CHECK(news[0].name == "5 slices of its workers are left out: too many in a moment");
    CHECK(news[0].thread == kAgentThread);
  }

  TEST_CASE("a text is no longer than it may be, and has the last slices") {
    SliceBook book;
    for (std::size_t i = 0; i < kMaxSlices; ++i) {
      TraceEvent long_one = slice(std::to_string(i) + std::string(5000, 'x'));
      for (int fact = 0; fact < 3; ++fact)
        long_one.facts.emplace_back("path", std::string(5000, '\x01'));
      book.add(long_one);
    }
    std::string text = book.text();
    CHECK(text.size() <= kMaxSlicesBytes);
    SliceWatch watch;
    auto news = watch.news("a.1", text);
    REQUIRE(news.size() > 2);
    CHECK(news.back().name.starts_with(std::to_string(kMaxSlices - 1) + "x"));
    CHECK(news.back().name.size() < 1100);
  }

  TEST_CASE("what is no slice is left out") {
    SliceWatch watch;
    for (const char* text :
         {"[", "[]", "{}", R"({"first": 0})", R"({"first": 0, "slices": 7})",
          R"({"first": -1, "slices": []})", R"({"first": 18446744073709551615, "slices": []})"})
      CHECK(watch.news("a.1", text).empty());
    CHECK(names(watch.news("a.1", R"({"first": 0, "slices": [
      7, {}, {"local_rank": 0, "name": "backwards", "begin": 2, "end": 1},
      {"local_rank": 1025, "name": "far", "begin": 1, "end": 2},
      {"local_rank": 0, "name": 7, "begin": 1, "end": 2},
      {"local_rank": 0, "name": "late", "begin": 1, "end": 9223372036854775807},
      {"local_rank": 0, "name": "good", "begin": 1, "end": 2, "facts": [1, ["a"], ["step", "7"]]}
    ]})")) == Names{"good"});
    std::string many = R"({"first": 7, "slices": [0)";
    for (std::size_t i = 0; i < kMaxSlices; ++i) many += ",0";
    CHECK(watch.news("a.1", many + "]}").empty());
    CHECK(watch.news("a.1", std::string(kMaxSlicesBytes + 1, ' ')).empty());
  }
}
