// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/own_folder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

TEST_SUITE("rendezvous/own_folder") {
  TEST_CASE("a folder that is made is this user's alone, and stays as it is") {
    test::TempDir base;
    const std::string path = base.path() + "/own";
    REQUIRE(make_own_folder(path));
    CHECK(open_own_folder(path).has_value());
    CHECK(make_own_folder(path));
    CHECK_FALSE(make_own_folder(base.path() + "/no/own"));
    CHECK(errno == ENOENT);
  }

  TEST_CASE("a folder that others can reach, or lead elsewhere, is not taken") {
    test::TempDir base;
    const std::string path = base.path() + "/own";
    CHECK(to_string(open_own_folder(path).error()) == "No such file or directory");
    REQUIRE(make_own_folder(path));
    std::filesystem::create_directory_symlink("own", base.path() + "/link");
    CHECK(to_string(open_own_folder(base.path() + "/link").error()) == "Not a directory");
    REQUIRE(::chmod(path.c_str(), 0750) == 0);
    CHECK(to_string(open_own_folder(path).error()) == "other users have access to it, or own it");
  }
}
