// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/node_files.h"

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

Died knows(const std::string& node, std::uint64_t round) {
  return {.name = node, .knows = {.number = round, .by = "a@0"}, .nodes = 3, .seen_of = "a@0"};
}

struct Machine {
  test::TempDir temp;
  std::string folder = temp.path() + "/files";

  NodeFiles agent(const std::string& name, const std::string& run = "run") const {
    return {folder, run, name};
  }
  std::vector<Died> died(const std::string& run = "run") const { return agent("x", run).died(); }
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    DIR* entries = ::opendir(folder.c_str());
    if (entries == nullptr) return found;
    while (const dirent* entry = ::readdir(entries)) {
      if (entry->d_name[0] != '.') found.push_back(folder + "/" + entry->d_name);
    }
    ::closedir(entries);
    return found;
  }
  // The only one.
  std::string file() const {
    auto all = files();
    REQUIRE(all.size() == 1);
    return all.front();
  }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  std::string text() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

void date(const std::string& file, std::time_t seconds_ago) {
  timespec at[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                    {.tv_sec = std::time(nullptr) - seconds_ago, .tv_nsec = 0}};
  REQUIRE(::utimensat(AT_FDCWD, file.c_str(), at, 0) == 0);
}

}  // namespace

TEST_CASE("Node files: what an agent knew is known when it has died, and not before") {
  Machine machine;
  {
    NodeFiles living = machine.agent("a");
    REQUIRE(living.keep(knows("a", 1)));
    CHECK(machine.died().empty());
    Died last = knows("a", 2);
    last.after = {{.id = {.number = 1, .by = "a@0"}, .nodes = 3, .was_in = true}};
    REQUIRE(living.keep(last));
    REQUIRE(living.keep(knows("a", 3)));  // a shorter one
    CHECK(machine.died().empty());
    CHECK(machine.agent("b").died().empty());
  }
  auto died = machine.died();
  REQUIRE(died.size() == 1);
  CHECK(died[0] == knows("a", 3));
  CHECK(machine.died("other").empty());
}

TEST_CASE("Node files: where the run was is said by the last that knew it") {
  Machine machine;
  const RunPlaces first{.run_uuid = "a.0", .at = {{.name = "a", .at = {"a", 7}}}};
  const RunPlaces second{.run_uuid = "a.0", .at = {{.name = "b", .at = {"b", 7}}}};
  CHECK(machine.agent("x").places() == RunPlaces{});
  {
    NodeFiles agent = machine.agent("a");
    REQUIRE(agent.keep(knows("a", 1), first));
    CHECK(machine.agent("x").places() == RunPlaces{});  // it lives
  }
  date(machine.file(), 10);
  CHECK(machine.agent("x").places() == first);
  {
    NodeFiles agent = machine.agent("b");
    REQUIRE(agent.keep(knows("b", 1), second));
    REQUIRE(agent.keep(knows("b", 1), first));
    REQUIRE(agent.keep(knows("b", 1), second));
  }
  CHECK(machine.agent("x").places() == second);
  REQUIRE(machine.agent("c").keep(knows("c", 2)));  // it knew the end of the run, or is older
  CHECK(machine.agent("x").places() == second);
  CHECK(machine.agent("x", "other").places() == RunPlaces{});
  CHECK(machine.died().size() == 3);
}

TEST_CASE("Node files: of a standby that was in no round the places alone are kept") {
  Machine machine;
  const RunPlaces first{.run_uuid = "a.0", .at = {{.name = "a", .at = {"a", 7}}}};
  const RunPlaces second{.run_uuid = "a.0", .at = {{.name = "b", .at = {"b", 7}}}};
  {
    NodeFiles agent = machine.agent("a");
    REQUIRE(agent.keep({.name = "a"}));
    CHECK(machine.files().empty());
    REQUIRE(agent.keep({.name = "a"}, first));
  }
  CHECK(machine.agent("x").places() == first);
  CHECK(machine.died().empty());
  SUBCASE("until it knows them no more") {
    NodeFiles agent = machine.agent("b");
    REQUIRE(agent.keep({.name = "b"}, second));
    CHECK(machine.files().size() == 2);
    REQUIRE(agent.keep({.name = "b"}));
    CHECK(machine.files().size() == 1);
  }
  SUBCASE("or until it is in a round") {
    REQUIRE(machine.agent("b").keep({.name = "b"}, second));
    NodeFiles agent = machine.agent("c");
    REQUIRE(agent.keep({.name = "c"}, second));
    REQUIRE(agent.keep(knows("c", 3), second));
  }
  SUBCASE("and however many there are, all others are known") {
    for (int i = 0; i < 20; ++i) {
      const std::string name = "n" + std::to_string(i);
      REQUIRE(machine.agent(name).keep({.name = name}, second));
      if (i == 0) REQUIRE(machine.agent("b").keep(knows("b", 1)));
    }
    CHECK(machine.died() == std::vector{knows("b", 1)});
  }
}

TEST_CASE("Node files: who looks again and again sees those that come, die and go") {
  Machine machine;
  NodeFiles looks = machine.agent("x");
  date(machine.folder, 10);
  CHECK(looks.died().empty());
  std::optional<NodeFiles> other;
  other.emplace(machine.agent("a"));
  other->keep(knows("a", 1));
  CHECK(looks.died().empty());
  date(machine.folder, 9);
  CHECK(looks.died().empty());  // from now on it need not read the folder
  CHECK(looks.died().empty());
  other.reset();
  CHECK(looks.died().size() == 1);
  std::optional<NodeFiles> second;
  second.emplace(machine.agent("b"));
  second->keep(knows("b", 1));
  second.reset();
  CHECK(looks.died().size() == 2);
  machine.agent("c").drop();
  CHECK(looks.died().empty());
}

TEST_CASE("Node files: that no worker lives is known if it was said, and goes with the file") {
  Machine machine;
  std::string path;
  {
    NodeFiles agent = machine.agent("a");
    CHECK(agent.last_word_path().empty());
    agent.leave("too early");
    REQUIRE(agent.keep(knows("a", 1)));
    path = agent.last_word_path();
    SUBCASE("by nobody") {}
    SUBCASE("by itself") {
      agent.leave("was stopped by SIGTERM");
    }
    SUBCASE("by its guardian") {
      write_last_word(path, "was killed");
    }
    SUBCASE("by both") {
      agent.leave("was stopped by SIGTERM");
      write_last_word(path, "was killed");
    }
    CHECK(machine.died().empty());
  }
  auto died = machine.died();
  REQUIRE(died.size() == 1);
  if (machine.files().size() == 1) {
    CHECK(died[0].left.empty());
  } else {
    CHECK((died[0].left == "was stopped by SIGTERM" || died[0].left == "was killed"));
  }
  NodeFiles last = machine.agent("b");
  REQUIRE(last.keep(knows("b", 1)));
  last.drop();
  CHECK(machine.files().empty());
}

TEST_CASE("Node files: a last word follows no link") {
  Machine machine;
  NodeFiles agent = machine.agent("a");
  REQUIRE(agent.keep(knows("a", 1)));
  const std::string path = agent.last_word_path();
  const std::string target = machine.temp.path() + "/target";
  REQUIRE(::symlink(target.c_str(), (path + ".partial").c_str()) == 0);
  agent.leave("was stopped");
  CHECK(::access(target.c_str(), F_OK) != 0);
  CHECK(::access(path.c_str(), F_OK) != 0);
}

TEST_CASE("Node files: those of a run that is over go") {
  Machine machine;
  REQUIRE(machine.agent("a").keep(knows("a", 1)));
  REQUIRE(machine.agent("o", "other").keep(knows("o", 1)));
  NodeFiles living = machine.agent("b");
  REQUIRE(living.keep(knows("b", 1)));
  NodeFiles last = machine.agent("c");
  REQUIRE(last.keep(knows("c", 1)));
  last.drop();
  CHECK(machine.files().size() == 2);  // of b, and of the other run
  CHECK(machine.died("other").size() == 1);
  REQUIRE(last.keep(knows("c", 2)));
  CHECK(machine.files().size() == 2);
}

TEST_CASE("Node files: what is not all there, or of another machine, says nothing") {
  Machine machine;
  REQUIRE(machine.agent("a").keep(knows("a", 1)));
  REQUIRE(machine.died().size() == 1);
  const std::string whole = machine.text();
  SUBCASE("a part") {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      machine.write(whole.substr(0, size));
      CHECK(machine.died().empty());
    }
  }
  SUBCASE("of another start of a machine") {
    machine.write("0" + whole);
    CHECK(machine.died().empty());
  }
  SUBCASE("no message") {
    machine.write(whole.substr(0, whole.find('\n') + 1) + "{}\n");
    CHECK(machine.died().empty());
  }
}

TEST_CASE("Node files: those that died last are named") {
  Machine machine;
  const std::size_t count = kMaxDied + 4;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::string> before = machine.files();
    std::string name = "n" + std::to_string(i);
    REQUIRE(machine.agent(name).keep(knows(name, i)));
    for (const std::string& file : machine.files()) {
      bool is_new = std::ranges::find(before, file) == before.end();
      if (is_new) date(file, static_cast<std::time_t>(1000 - i));
    }
  }
  auto died = machine.died();
  REQUIRE(died.size() == kMaxDied);
  CHECK(died.front().name == "n19");
  CHECK(died.back().name == "n4");
}

TEST_CASE(
    "Node files: what is left of dead agents is removed after a day, by a look in each hour") {
  Machine machine;
  REQUIRE(machine.agent("a").keep(knows("a", 1)));
  NodeFiles living = machine.agent("b");
  REQUIRE(living.keep(knows("b", 1)));
  for (const std::string& file : machine.files()) date(file, 100'000);
  std::ofstream(machine.folder + "/x.partial").put('x');
  date(machine.folder + "/x.partial", 100'000);
  date(machine.folder + "/.looked", 3'500);
  machine.agent("a", "other");
  CHECK(machine.files().size() == 3);
  SUBCASE("the last look was an hour ago") {
    date(machine.folder + "/.looked", 3'700);
  }
  SUBCASE("the clock was set back") {
    date(machine.folder + "/.looked", -100);
  }
  SUBCASE("by an agent of their own run, which needs them") {
    date(machine.folder + "/.looked", 3'700);
    machine.agent("c");
    CHECK(machine.files().size() == 2);
    CHECK(machine.died().size() == 1);
    date(machine.folder + "/.looked", 3'700);
  }
  machine.agent("a", "other");
  CHECK(machine.files().size() == 1);
  CHECK(machine.died().empty());
}

TEST_CASE("Node files: what cannot be written is tried again") {
  Machine machine;
  NodeFiles agent = machine.agent("a");
  REQUIRE(agent.keep(knows("a", 1)));
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const struct rlimit full = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  auto* handler = ::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  auto kept = agent.keep(knows("a", 2));
  bool has_file = !machine.files().empty();
  auto again = agent.keep(knows("a", 2));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, handler);
  REQUIRE_FALSE(kept);
  CHECK(to_string(kept.error()).find(machine.folder) != std::string::npos);
  CHECK_FALSE(has_file);
  CHECK_FALSE(again);
  CHECK(agent.last_word_path().empty());
  REQUIRE(agent.keep(knows("a", 2)));
  CHECK(machine.files().size() == 1);
  CHECK_FALSE(agent.last_word_path().empty());
}

TEST_CASE("Node files: a folder that others can change is not used") {
  Machine machine;
  REQUIRE(::mkdir(machine.folder.c_str(), 0755) == 0);
  NodeFiles agent = machine.agent("a");
  CHECK(agent.problem().starts_with(machine.folder + " is no folder of this user's alone"));
  REQUIRE(agent.keep(knows("a", 1)));
  CHECK(machine.files().empty());
  REQUIRE(::rmdir(machine.folder.c_str()) == 0);
  REQUIRE(::symlink(machine.temp.path().c_str(), machine.folder.c_str()) == 0);
  CHECK_FALSE(machine.agent("a").problem().empty());
  machine.folder.clear();
  CHECK(machine.agent("a").problem().empty());
  REQUIRE(machine.agent("a").keep(knows("a", 1)));
  CHECK(machine.died().empty());
}
