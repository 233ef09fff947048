// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/text_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

using ddprun::process::end_of_regular_file;
using ddprun::process::part_of_regular_file;
using ddprun::process::text_of_file;
using ddprun::process::text_of_regular_file;

TEST_SUITE("worker/process/text_file") {
  TEST_CASE("a file's bytes, of any number") {
    std::string path = std::filesystem::temp_directory_path() / "ddprun-text-file-XXXXXX";
    int descriptor = ::mkstemp(path.data());
    REQUIRE(descriptor >= 0);
    ::close(descriptor);
    CHECK(text_of_file(path) == "");
    for (std::size_t size : {1u, 4096u, 4097u, 100'000u}) {
      std::string text(size, '\0');
      text.back() = '\n';
      std::ofstream(path, std::ios::binary) << text;
      CHECK(text_of_file(path) == text);
    }
    std::filesystem::remove(path);
    CHECK(text_of_file(path) == std::nullopt);
  }

  TEST_CASE("of a worker's file, only what is a regular file of a bounded size") {
    ddprun::test::TempDir folder;
    auto named = [&](const char* name) { return folder.path() + "/" + name; };
    std::ofstream(named("file")) << "abc";
    CHECK(text_of_regular_file(named("file"), 3) == "abc");
    CHECK(text_of_regular_file(named("file"), 2) == std::nullopt);
    CHECK(end_of_regular_file(named("file"), 2) == "bc");
    CHECK(end_of_regular_file(named("file"), 9) == "abc");
    CHECK(part_of_regular_file(named("file"), 1, 1) == "b");
    CHECK(part_of_regular_file(named("file"), 1, 9) == "bc");
    CHECK(part_of_regular_file(named("file"), 4, 9) == "");
    CHECK(text_of_regular_file(named("none"), 3) == std::nullopt);
    REQUIRE(::mkfifo(named("fifo").c_str(), 0600) == 0);
    CHECK(text_of_regular_file(named("fifo"), 3) == std::nullopt);  // and does not wait
    CHECK(end_of_regular_file(named("fifo"), 3) == std::nullopt);
    CHECK(part_of_regular_file(named("fifo"), 0, 3) == std::nullopt);
    std::filesystem::create_symlink("/dev/zero", named("zero"));
    CHECK(text_of_regular_file(named("zero"), 3) == std::nullopt);
    std::filesystem::create_symlink("file", named("link"));
    CHECK(text_of_regular_file(named("link"), 3) == std::nullopt);
    CHECK(text_of_regular_file("/dev/zero", 3) == std::nullopt);
  }

  TEST_CASE("what opens well and cannot be read is no text, and no exception") {
    CHECK(text_of_file("/") == std::nullopt);
    CHECK(text_of_file("/proc/self/mem") == std::nullopt);
  }
}
