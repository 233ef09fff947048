// SPDX-License-Identifier: BSD-3-Clause
#include "cli/event_log.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temp_dir.h"

using namespace ddprun;
using ddprun::cli::open_event_file;
namespace fs = std::filesystem;

namespace {

std::string text_of(const std::string& path) {
  std::string text;
  std::ifstream(path) >> text;
  return text;
}

bool append(const std::string& path, const std::string& text) {
  Result<Fd> file = open_event_file(path);
  return file &&
         ::write(file->get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// As /tmp.
struct SharedFolder : test::TempDir {
  SharedFolder() { ::chmod(path().c_str(), 01777); }
};

}  // namespace

TEST_SUITE("cli/event_log") {
  TEST_CASE_FIXTURE(SharedFolder, "a file is made, and appended to") {
    CHECK(append(path() + "/events", "a"));
    CHECK(append(path() + "/events", "b"));
    CHECK(text_of(path() + "/events") == "ab");
  }

  TEST_CASE("a record that a full disk refuses is told, and what is cut ends its line") {
    CHECK(to_string(cli::EventFile(open_event_file("/dev/full").value(), "/dev/full")
                        .write("a\n")
                        .error()) == "write /dev/full: No space left on device");
    test::TempDir folder;
    const std::string path = folder.path() + "/events";
    cli::EventFile file(open_event_file(path).value(), path);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit small{.rlim_cur = 3, .rlim_max = before.rlim_max};
    ::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    bool is_lost = !file.write("first\n").has_value();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    ::signal(SIGXFSZ, SIG_DFL);
    CHECK(is_lost);
    CHECK(file.write("second\n").has_value());
    std::ifstream read(path);
    CHECK(std::string(std::istreambuf_iterator<char>(read), {}) == "fir\nsecond\n");
  }

  TEST_CASE_FIXTURE(SharedFolder, "where anybody may put files, no link is followed") {
    test::TempDir own;
    fs::create_symlink(own.path() + "/victim", path() + "/link");
    Result<Fd> file = open_event_file(path() + "/link");
    REQUIRE_FALSE(file.has_value());
    CHECK(file.error().context.find("it is a link, no regular file, or another user's") !=
          std::string::npos);
    CHECK_FALSE(fs::exists(own.path() + "/victim"));
    std::ofstream(own.path() + "/victim") << "mine";
    fs::create_hard_link(own.path() + "/victim", path() + "/name");
    CHECK_FALSE(open_event_file(path() + "/name").has_value());
  }

  TEST_CASE_FIXTURE(SharedFolder, "where anybody may put files, another user's is not written to") {
    if (::geteuid() != 0) return;
    std::ofstream(path() + "/planted") << "";
    ::chmod((path() + "/planted").c_str(), 0666);
    REQUIRE(::chown((path() + "/planted").c_str(), 54321, 54321) == 0);
    CHECK_FALSE(open_event_file(path() + "/planted").has_value());
  }

  TEST_CASE_FIXTURE(SharedFolder, "where anybody may put files, no FIFO is waited for") {
    REQUIRE(::mkfifo((path() + "/fifo").c_str(), 0666) == 0);
    CHECK_FALSE(open_event_file(path() + "/fifo").has_value());
  }

  TEST_CASE("in a folder of the user's own a link is followed") {
    test::TempDir own;
    fs::create_symlink(own.path() + "/events", own.path() + "/link");
    CHECK(append(own.path() + "/link", "a"));
    CHECK(text_of(own.path() + "/events") == "a");
  }
}
