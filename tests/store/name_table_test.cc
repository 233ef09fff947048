// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/name_table.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

using namespace ddprun::store;

namespace {

struct Number {
  int value = 0;
};
using Table = NameTable<Number>;

void put(Table& table, const std::string& name, int value) {
  Table::Hash hash = table.hash(name);
  Table::Node* node = table.find(name, hash);
  (node != nullptr ? *node : table.add(name, hash)).entry.value = value;
}

std::map<std::string, int> all_of(const Table& table) {
  std::map<std::string, int> found;
  table.for_each(
      [&](const Table::Node& node) { CHECK(found.emplace(node.name(), node.entry.value).second); });
  return found;
}

}  // namespace

TEST_SUITE("store/decide/name_table") {
  TEST_CASE("a name of any length is found, and no other") {
    Table table({1, 2});
    CHECK(table.find("") == nullptr);
    for (std::size_t length = 0; length < 40; ++length) {
      put(table, std::string(length, 'k'), static_cast<int>(length));
    }
    for (std::size_t length = 0; length < 40; ++length) {
      std::string name(length, 'k');
      REQUIRE(table.find(name) != nullptr);
      CHECK(table.find(name)->name() == name);
      CHECK(table.find(name)->entry.value == static_cast<int>(length));
      for (std::size_t i = 0; i < length; ++i) {
        name[i] = 'x';
        CHECK(table.find(name) == nullptr);
        name[i] = 'k';
      }
    }
  }

  TEST_CASE("random additions and erasures leave what a map has") {
    std::mt19937 random(7);
    Table table({3, 4});
    std::map<std::string, int> expected;
    std::vector<std::size_t> ranges{30000, 10, 5000, 1};  // so that it grows and shrinks
    for (std::size_t range : ranges) {
      for (int i = 0; i < 40000; ++i) {
        std::string name = "/name" + std::to_string(random() % 30000);
        if (random() % 30000 < range) {
          put(table, name, i);
          expected[name] = i;
        } else if (Table::Node* node = table.find(name)) {
          table.erase(*node);
          expected.erase(name);
        }
      }
      CHECK(table.size() == expected.size());
      CHECK(all_of(table) == expected);
    }
    for (const auto& [name, value] : expected) table.erase(*table.find(name));
    CHECK(table.size() == 0);
    CHECK(all_of(table).empty());
    put(table, "again", 1);
    CHECK(all_of(table) == std::map<std::string, int>{{"again", 1}});
  }

  TEST_CASE("a table is emptied node by node, and each is dropped once") {
    Table table({5, 6});
    for (int i = 0; i < 5000; ++i) put(table, std::to_string(i), i);
    std::set<int> dropped;
    int left = 0;
    auto may_drop = [&](Table::Node& node) {
      return left-- > 0 && dropped.insert(node.entry.value).second;
    };
    int steps = 0;
    do {
      CHECK(dropped.size() == std::size_t(1000) * std::size_t(steps++));
      left = 1000;
    } while (!table.drop_some(may_drop));
    CHECK(steps == 5);
    CHECK(dropped.size() == 5000);
    CHECK(table.size() == 0);
    for (int i = 0; i < 1000; ++i) put(table, std::to_string(i), i);
    left = 700;
    CHECK_FALSE(table.drop_some([&](const Table::Node&) { return left-- > 0; }));
    table.clear();
    CHECK(table.size() == 0);
  }

  TEST_CASE("a node stays where it is") {
    Table table({5, 6});
    Table::Node& first = table.add("first", table.hash("first"));
    for (int i = 0; i < 20000; ++i) put(table, std::to_string(i), i);
    CHECK(table.find("first") == &first);
  }

  TEST_CASE("a listing in pieces has what was there all the time, once, whatever changes") {
    std::mt19937 random(8);
    Table table({9, 10});
    for (int i = 0; i < 5000; ++i) put(table, "stays" + std::to_string(i), i);
    for (int i = 0; i < 5000; ++i) put(table, "goes" + std::to_string(i), i);
    std::multiset<std::string> listed;
    int added = 0, erased = 0;
    for (std::optional<Table::Hash> next = 0; next;) {
      next = table.visit_some(*next, [&](const Table::Node& node) { listed.emplace(node.name()); });
      for (int i = 0; i < 300; ++i) put(table, "comes" + std::to_string(added++), i);
      for (int i = 0; i < 200 && erased < 5000; ++i) {
        table.erase(*table.find("goes" + std::to_string(erased++)));
      }
    }
    for (int i = 0; i < 5000; ++i) CHECK(listed.count("stays" + std::to_string(i)) == 1);
    for (const std::string& name : listed) CHECK(listed.count(name) == 1);
  }

  TEST_CASE("a walk gives each name its hash, and stops where it is told to") {
    Table table({11, 12});
    std::vector<std::string> names;
    for (int i = 0; i < 100; ++i) names.push_back(std::to_string(i));
    auto name_of = [&](std::size_t i) -> std::string_view { return names[i]; };
    std::size_t visited = 0;
    auto add = [&](std::size_t i, Table::Hash hash) {
      CHECK(hash == table.hash(names[i]));
      table.add(names[i], hash);
      return ++visited < 70;
    };
    CHECK(table.walk(0, names.size(), name_of, add) == 69);
    CHECK(table.size() == 70);
    CHECK(table.walk(70, names.size(), name_of, add) == 70);
    CHECK(table.walk(71, 71, name_of, add) == 71);
  }

  // Whoever knew the seed could choose such names; they must cost time only, and not the
  // directory's doubling without end.
  TEST_CASE("names with the same hash are all found") {
    Table table({0, 0});
    constexpr Table::Hash kSame = 0x123456789abcdef0;
    std::vector<std::string> names;
    for (int i = 0; i < 3000; ++i) names.push_back("same" + std::to_string(i));
    for (const std::string& name : names) table.add(name, kSame);
    for (const std::string& name : names) CHECK(table.find(name, kSame)->name() == name);
    std::size_t count = 0;
    table.for_each([&](const Table::Node&) { ++count; });
    CHECK(count == names.size());
  }
}
