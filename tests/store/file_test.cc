// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "store/base/fd.h"
#include "store/base/folder.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;

namespace {

constexpr mode_t kMode = 0600;

// An open folder.
struct Folder {
  test::TempDir temporary;
  Fd fd{::open(temporary.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};

  std::string path(const std::string& name) const { return temporary.path() + "/" + name; }
  std::string text_of(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // "a b", sorted.
  std::string names(std::size_t most = 100, const std::string& beginning = "") const {
    std::error_code error;
    auto found = names_in(fd.get(), most, error,
                          [&](std::string_view name) { return name.starts_with(beginning); });
    REQUIRE_FALSE(error);
    std::ranges::sort(found);
    std::string text;
    for (const std::string& name : found) text += (text.empty() ? "" : " ") + name;
    return text;
  }
};

}  // namespace

TEST_SUITE("store/base/file") {
  TEST_CASE("all is written, also where a reader is slow and the descriptor would not wait") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    Fd read_end(ends[0]);
    Fd write_end(ends[1]);
    const std::string text(1 << 20, 'x');
    std::size_t received = 0;
    std::thread reader([&] {
      std::string buffer(4096, '\0');
      while (received < text.size()) {
        ssize_t count = ::read(read_end.get(), buffer.data(), buffer.size());
        if (count > 0) received += static_cast<std::size_t>(count);
      }
    });
    CHECK(write_all(write_end.get(), text) == 0);
    reader.join();
    CHECK(received == text.size());
    CHECK(write_all(read_end.get(), text) == EBADF);
    Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    CHECK(write_all(full.get(), text) == ENOSPC);
    CHECK(write_all(full.get(), "") == 0);
  }

  TEST_CASE_FIXTURE(Folder, "a new file takes the place of nothing") {
    REQUIRE(write_new_file(fd.get(), "a", "text", 0640).has_value());
    CHECK(text_of("a") == "text");
    std::filesystem::create_symlink("nowhere", path("link"));
    CHECK(write_new_file(fd.get(), "a", "other", kMode).error().code == std::errc::file_exists);
    CHECK(write_new_file(fd.get(), "link", "other", kMode).error().code == std::errc::file_exists);
    CHECK(text_of("a") == "text");
    CHECK(names() == "a link");
    CHECK(to_string(write_new_file(fd.get(), "no/a", "", kMode).error()) ==
          "write no/a: No such file or directory");
  }

  TEST_CASE_FIXTURE(Folder, "a file is replaced as a whole, or not at all") {
    REQUIRE(replace_file(fd.get(), "a", ".a", "one", kMode).has_value());
    REQUIRE(replace_file(AT_FDCWD, path("a"), path(".a"), "two", kMode).has_value());
    CHECK(text_of("a") == "two");
    std::filesystem::create_directories(path("folder/in it"));
    CHECK(to_string(replace_file(fd.get(), "folder", ".a", "three", kMode).error()) ==
          "write folder: Is a directory");
    CHECK(names() == "a folder");
    REQUIRE(write_new_file(fd.get(), ".a", "another's", kMode).has_value());
    CHECK_FALSE(replace_file(fd.get(), "a", ".a", "four", kMode).has_value());
    CHECK(text_of("a") == "two");
    CHECK(text_of(".a") == "another's");
  }
}

TEST_SUITE("store/base/folder") {
  TEST_CASE_FIXTURE(Folder, "the names in an open folder are those that are wanted, and no more") {
    CHECK(names() == "");
    for (const char* name : {"a1", "a2", "b", ".hidden"}) std::ofstream(path(name)) << "";
    CHECK(names() == ".hidden a1 a2 b");
    CHECK(names() == ".hidden a1 a2 b");  // once more: the caller's place in it is its own
    CHECK(names(100, "a") == "a1 a2");
    CHECK(names(1, "b") == "b");
    CHECK(names(1, "a").size() == 2);
    CHECK(names(0) == "");
  }

  TEST_CASE("a folder that cannot be read has no names, and a reason") {
    std::error_code error;
    CHECK(names_in(-1, 10, error, [](std::string_view) { return true; }).empty());
    CHECK(error == std::errc::bad_file_descriptor);
    Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    CHECK(names_in(file.get(), 10, error, [](std::string_view) { return true; }).empty());
    CHECK(error == std::errc::not_a_directory);
  }
}
