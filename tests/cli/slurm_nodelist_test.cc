// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/nodelist.h"

#include <doctest/doctest.h>

#include <fstream>
#include <random>

using namespace ddprun;
using namespace ddprun::cli;

namespace {

std::string expanded(std::string_view list) {
  auto names = expand_nodelist(list);
  if (!names) return "! " + to_string(names.error());
  std::string text;
  for (const std::string& name : *names) text += (text.empty() ? "" : " ") + name;
  return text;
}

// What is wrong with it, without the list.
std::string wrong(std::string_view list) {
  std::string text = expanded(list);
  std::string before = "! node list '" + std::string(list) + "': ";
  REQUIRE(text.starts_with(before));
  return text.substr(before.size());
}

}  // namespace

TEST_SUITE("cli/slurm/nodelist") {
  // tests/cli/slurm_nodelists.txt holds what `scontrol show hostnames` of Slurm 22.05.8 said;
  // tests/slurm/nodelist_test.py records it, and compares again where there is a scontrol.
  TEST_CASE("lists expand as scontrol expands them") {
    std::ifstream file("tests/cli/slurm_nodelists.txt");
    REQUIRE_MESSAGE(file.good(), "run it from the root of the repository");
    int count = 0;
    for (std::string line; std::getline(file, line);) {
      if (line.empty() || line.starts_with('#')) continue;
      std::size_t arrow = line.find(" => ");
      REQUIRE(arrow != std::string::npos);
      std::string list = line.substr(0, arrow);
      CAPTURE(list);
      CHECK(expanded(list) == line.substr(arrow + 4));
      ++count;
    }
    CHECK(count >= 100);
  }

  TEST_CASE("a suffix after the last bracket is understood, unlike by scontrol") {
    CHECK(expanded("gpu-a[1-2]b") == "gpu-a1b gpu-a2b");
    CHECK(expanded("n[0-1].site,m") == "n0.site n1.site m");
  }

  TEST_CASE("what is no list is refused, with the place") {
    CHECK(wrong("n[3-1]") == "'3-1' counts down");
    CHECK(wrong("n[]") == "'' is no number and no range of numbers");
    CHECK(wrong("n[1,,2]") == "'' is no number and no range of numbers");
    CHECK(wrong("n[a-b]") == "'a-b' is no number and no range of numbers");
    CHECK(wrong("n[-2]") == "'-2' is no number and no range of numbers");
    CHECK(wrong("n[1-]") == "'1-' is no number and no range of numbers");
    CHECK(wrong("n[+1-2]") == "'+1-2' is no number and no range of numbers");
    CHECK(wrong("n[10-20/2]") == "'10-20/2' is no number and no range of numbers");
    CHECK(wrong("n[1-2]]") == "a bracket is closed and was not open");
    CHECK(wrong("n]1") == "a bracket is closed and was not open");
    CHECK(wrong("n[1-2") == "a bracket is not closed");
    CHECK(wrong("n[1-2,m") == "a bracket is not closed");
    CHECK(wrong("n[[1-2]]") == "'[1-2' is no number and no range of numbers");
    CHECK(wrong("") == "it names no node");
    CHECK(wrong(" , ") == "it names no node");
    CHECK(wrong("n[99999999999999999999]") ==
          "'99999999999999999999' is no number and no range of numbers");
  }

  TEST_CASE("no list makes more names than a cluster has") {
    CHECK(expand_nodelist("n[0-65535]")->size() == kMaxNodes);
    CHECK(wrong("n[0-65536]") == "it names more than 65536 nodes");
    CHECK(wrong("n[0-65535],m") == "it names more than 65536 nodes");
    CHECK(wrong("n[0-999]-[0-999]-[0-999]") == "it names more than 65536 nodes");
    CHECK(wrong("n[0-18446744073709551615]") == "it names more than 65536 nodes");
    CHECK(wrong("n[18446744073709551615]x[0-65536]") == "it names more than 65536 nodes");
    CHECK(expanded("n[18446744073709551614-18446744073709551615]") ==
          "n18446744073709551614 n18446744073709551615");
    CHECK(expanded(std::string(2000, 'x') + "[1]").ends_with("xxx...': a name is too long"));
  }

  // The same with libFuzzer: scripts/fuzz.
  TEST_CASE("any text is a list or is refused") {
    std::mt19937 random(20260101);
    constexpr std::string_view kAlphabet = "n0123456789[]-, \t.x";
    for (int i = 0; i < 20000; ++i) {
      std::string text(random() % 24, ' ');
      for (char& c : text) c = kAlphabet[random() % kAlphabet.size()];
      CAPTURE(text);
      auto names = expand_nodelist(text);
      if (!names) continue;
      CHECK(!names->empty());
      CHECK(names->size() <= kMaxNodes);
      for (const std::string& name : *names)
        CHECK(name.find_first_of("[], \t") == std::string::npos);
    }
  }
}
