// SPDX-License-Identifier: BSD-3-Clause
#include "agent/log_dir.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::agent;
namespace fs = std::filesystem;

TEST_SUITE("agent/log_dir") {
  TEST_CASE("each attempt has a folder of its own, also under the same restart count") {
    test::TempDir base;
    LogDir logs = LogDir::create(base.path() + "/a/b", "run 7/x").value();
    CHECK(logs.path().starts_with(base.path() + "/a/b/run 7_x_"));
    std::string first = logs.make_attempt(0).value();
    CHECK(first == logs.path() + "/attempt_0");
    CHECK(logs.make_attempt(1).value() == logs.path() + "/attempt_1");
    CHECK(logs.make_attempt(1).value() == logs.path() + "/attempt_1.1");
    CHECK(logs.make_attempt(1).value() == logs.path() + "/attempt_1.2");
    CHECK(LogDir::make_worker_folder(first, 117).value() == first + "/117");
    CHECK(fs::is_directory(first + "/117"));
  }

  TEST_CASE("the folder of a run is its user's alone, and nobody can guess its name") {
    test::TempDir base;
    ::setenv("TMPDIR", base.path().c_str(), 1);
    LogDir first = LogDir::create("", "run").value();
    LogDir second = LogDir::create("", "run").value();
    ::unsetenv("TMPDIR");
    CHECK(first.path().starts_with(base.path() + "/ddprun_run_"));
    CHECK(first.path() != second.path());
    CHECK(fs::status(first.path()).permissions() == fs::perms::owner_all);
    LogDir named = LogDir::create(base.path() + "/named", "run").value();
    CHECK(fs::status(named.path()).permissions() == fs::perms::owner_all);
  }

  TEST_CASE("a folder that a cleaner has removed is made anew, and none that others have made") {
    test::TempDir base;
    LogDir logs = LogDir::create(base.path() + "/logs", "run").value();
    fs::remove_all(base.path() + "/logs");
    std::string attempt = logs.make_attempt(1).value();
    CHECK(attempt == logs.path() + "/attempt_1");
    CHECK(fs::status(logs.path()).permissions() == fs::perms::owner_all);
    CHECK(fs::status(attempt).permissions() == fs::perms::owner_all);
    CHECK_FALSE(logs.restore());  // it is there

    fs::remove_all(logs.path());
    CHECK(logs.restore());
    fs::remove_all(logs.path());
    fs::create_symlink("/nowhere", logs.path());
    CHECK_FALSE(logs.restore());
    CHECK_FALSE(logs.make_attempt(2).has_value());
  }

  TEST_CASE("a temporary folder has an absolute path, wherever TMPDIR leads") {
    test::TempDir base;
    const fs::path before = fs::current_path();
    fs::current_path(base.path());
    fs::create_directory("relative");
    ::setenv("TMPDIR", "relative", 1);
    CHECK(temporary_folder() == base.path() + "/relative");
    ::setenv("TMPDIR", "/nowhere", 1);
    CHECK(temporary_folder() == "/tmp");
    ::unsetenv("TMPDIR");
    fs::current_path(before);
  }

  TEST_CASE("who else can exchange the folder of a run is said") {
    test::TempDir base;
    LogDir logs = LogDir::create(base.path() + "/a", "run").value();
    CHECK(logs.exposure() == "");
    fs::permissions(base.path() + "/a", fs::perms::all | fs::perms::sticky_bit);
    CHECK(logs.exposure() == "");
    fs::permissions(base.path() + "/a", fs::perms::all);
    CHECK(logs.exposure().find("/a, where every user can exchange it: --log-dir DIR") !=
          std::string::npos);
    fs::permissions(base.path() + "/a", fs::perms::owner_all);
    if (::geteuid() != 0) {
      MESSAGE("skipped: only root can give a folder to another user");
      return;
    }
    REQUIRE(::chown((base.path() + "/a").c_str(), 54321, 0) == 0);
    CHECK(logs.exposure().find("/a, where user 54321 can exchange it") != std::string::npos);
  }

  TEST_CASE("latest leads to the run that began last") {
    test::TempDir base;
    for (const char* run : {"a", "b"}) {
      LogDir logs = LogDir::create(base.path(), run).value();
      CHECK(fs::canonical(base.path() + "/latest") == fs::canonical(logs.path()));
      CHECK(fs::read_symlink(base.path() + "/latest") == fs::path(logs.path()).filename());
    }
  }

  TEST_CASE("runs that begin at once leave one link that leads to one of them, and nothing else") {
    test::TempDir base;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 20; ++j) LogDir::create(base.path(), "run").value();
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(fs::is_directory(base.path() + "/latest"));
    auto entries = std::distance(fs::directory_iterator(base.path()), fs::directory_iterator());
    CHECK(entries == 8 * 20 + 1);
  }

  TEST_CASE("a file is written as a whole, or not at all") {
    test::TempDir base;
    auto count = [&] {
      return std::distance(fs::directory_iterator(base.path()), fs::directory_iterator());
    };
    std::string path = base.path() + "/file";
    // Another user's, in /tmp: a link, or a folder, which he alone can remove.
    fs::create_directories(path + ".ddprun-" + std::to_string(::getpid()) + "/in it");
    REQUIRE(write_file(path, "text").has_value());
    CHECK(count() == 2);
    std::string text;
    std::ifstream(path) >> text;
    CHECK(text == "text");
    fs::create_directories(base.path() + "/folder/in it");
    CHECK_FALSE(write_file(base.path() + "/folder", "text").has_value());
    CHECK(count() == 3);
  }

  TEST_CASE("what is called latest and is no link stays") {
    test::TempDir base;
    std::ofstream(base.path() + "/latest") << "mine";
    LogDir::create(base.path(), "a").value();
    CHECK(fs::is_regular_file(fs::symlink_status(base.path() + "/latest")));
  }

  TEST_CASE("a temporary folder goes when it holds no file; one that the user named stays") {
    test::TempDir base;
    LogDir named = LogDir::create(base.path(), "a").value();
    CHECK_FALSE(named.remove_if_empty());
    CHECK(fs::is_directory(named.path()));

    LogDir temporary = LogDir::create("", "a").value();
    std::string attempt = temporary.make_attempt(0).value();
    std::ofstream(attempt + "/stdout.log") << "text";
    CHECK_FALSE(temporary.remove_if_empty());
    CHECK(fs::exists(attempt + "/stdout.log"));
    fs::remove(attempt + "/stdout.log");
    CHECK(temporary.remove_if_empty());
    CHECK_FALSE(fs::exists(temporary.path()));
    CHECK(fs::exists(fs::path(temporary.path()).parent_path()));
  }

  TEST_CASE("a temporary folder stays where part of it cannot be read") {
    constexpr uid_t kUser = 54323;  // for root there is nothing that it cannot read
    const uid_t own = ::geteuid();
    if (own == 0) REQUIRE(::seteuid(kUser) == 0);
    LogDir temporary = LogDir::create("", "a").value();
    fs::path closed = temporary.make_attempt(0).value() + "/closed";
    std::error_code error;
    bool is_made = fs::create_directory(closed, error);
    fs::permissions(closed, fs::perms::none, error);
    bool is_removed = temporary.remove_if_empty();
    if (own == 0) REQUIRE(::seteuid(own) == 0);
    CHECK(is_made);
    CHECK_FALSE(is_removed);
    CHECK(fs::is_directory(closed));
    fs::remove_all(temporary.path());
    fs::remove(fs::path(temporary.path()).parent_path(), error);
  }

  TEST_CASE("a folder that cannot be made is named with the reason and what to do") {
    test::TempDir base;
    std::ofstream(base.path() + "/file") << "text";
    auto logs = LogDir::create(base.path() + "/file", "a");
    REQUIRE(logs.has_error());
    std::string advice = " (--log-dir DIR names another one, --log-dir /dev/null none)";
    CHECK(to_string(logs.error()) ==
          "log folder " + base.path() + "/file" + advice + ": Not a directory");
    logs = LogDir::create("/proc/self/logs", "a");
    REQUIRE(logs.has_error());
    CHECK(to_string(logs.error()).starts_with("log folder /proc/self/logs" + advice + ": "));
  }
}
