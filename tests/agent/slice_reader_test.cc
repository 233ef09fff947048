// SPDX-License-Identifier: BSD-3-Clause
#include "agent/slice_reader.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

struct Folder {
  test::TempDir place;
  SliceReader reader;

  void append(const std::string& text) {
    std::ofstream(slices_path(place.path()), std::ios::app) << text;
  }
  static std::string line(const std::string& name) {
    return R"({"name": ")" + name + R"(", "begin": 1, "end": 2})" + "\n";
  }
  std::vector<std::string> read() {
    std::vector<std::string> names;
    for (const auto& slice : reader.read(place.path())) names.push_back(slice.name);
    return names;
  }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE("agent/slice_reader") {
  TEST_CASE("each line is read once, when it is whole, and what is none is passed over") {
    Folder folder;
    CHECK(folder.read().empty());
    folder.append(Folder::line("one") + "no line\n" + Folder::line("two").substr(0, 10));
    CHECK(folder.read() == Names{"one"});
    CHECK(folder.read().empty());
    folder.append(Folder::line("two").substr(10) + "\n" + Folder::line("three"));
    CHECK(folder.read() == Names{"two", "three"});
    CHECK(folder.read().empty());
  }

  TEST_CASE("a long line without an end is passed over") {
    Folder folder;
    folder.append(std::string(SliceReader::kMostBytes + 100, 'x'));
    CHECK(folder.read().empty());
    folder.append("\n" + Folder::line("one"));
    CHECK(folder.read() == Names{"one"});
  }

  TEST_CASE("a worker that writes without end is not followed") {
    Folder folder;
    std::string lines;
    for (std::size_t i = 0; i < SliceReader::kMostSlices + 100; ++i) lines += Folder::line("x");
    folder.append(lines);
    std::size_t count = 0;
    while (std::size_t more = folder.read().size()) count += more;
    CHECK(count == SliceReader::kMostSlices);
  }

  TEST_CASE("only a regular file is read") {
    Folder folder;
    std::string path = slices_path(folder.place.path());
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK(folder.read().empty());
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    CHECK(folder.read().empty());
  }
}
