// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/text_file.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using ddprun::process::text_of_file;

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

  TEST_CASE("what opens well and cannot be read is no text, and no exception") {
    CHECK(text_of_file("/") == std::nullopt);
    CHECK(text_of_file("/proc/self/mem") == std::nullopt);
  }
}
