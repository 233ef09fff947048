// SPDX-License-Identifier: BSD-3-Clause
#include "agent/timeline_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/event_loop.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::agent;
using rendezvous::TraceEvent;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Names of the events that are no metadata, in order.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (const auto& event : nlohmann::json::parse(text)) {
    if (event.value("ph", "M") != "M") names.push_back(event.value("name", ""));
  }
  return names;
}

struct Writer {
  boost::asio::io_context loop;
  std::vector<Error> errors;
  TimelineFile file;

  explicit Writer(TimelineConfig config)
      : file(loop.get_executor(), std::move(config),
             [this](const Error& error) { errors.push_back(error); }) {}

  void hosted(int number) { file.hosted({.name = "event " + std::to_string(number)}); }
  void end() {
    bool has_ended = false;
    boost::asio::co_spawn(
        loop,
        [&]() -> boost::asio::awaitable<void> {
          co_await file.end();
          has_ended = true;
        },
        boost::asio::detached);
    REQUIRE(test::run_until(loop, [&] { return has_ended; }));
  }
};

}  // namespace

TEST_SUITE("agent/timeline_file") {
  TEST_CASE("the file begins where the run is hosted here, with what was seen before") {
    test::TempDir base;
    std::string path = base.path() + "/timeline.json";
    Writer writer({.path = path, .node = "n", .host = "node0"});
    writer.file.here({.name = "before"});
    CHECK_FALSE(std::filesystem::exists(path));
    writer.hosted(1);
    writer.file.here({.name = "after"});
    writer.end();
    CHECK(names_in(text_of(path)) == std::vector<std::string>{"before", "event 1", "after"});
    CHECK(writer.errors.empty());
  }

  TEST_CASE("a file that is full says so, ends as a whole one, and takes no more") {
    test::TempDir base;
    std::string path = base.path() + "/timeline.json";
    constexpr std::size_t kMost = 4096;
    Writer writer({.path = path, .node = "n", .host = "node0", .most_bytes = kMost});
    for (int i = 0; i < 1000; ++i) writer.hosted(i);
    writer.file.here({.name = "late"});
    writer.end();
    std::string text = text_of(path);
    CHECK(text.size() <= kMost);
    CHECK(text.size() > kMost / 2);
    std::vector<std::string> names = names_in(text);
    REQUIRE(names.size() > 2);
    CHECK(names.front() == "event 0");
    CHECK(names.at(names.size() - 2) == "event " + std::to_string(names.size() - 2));
    CHECK(names.back() == "the file is full");
    CHECK(writer.errors.empty());
  }

  TEST_CASE("a full disk is said once, and nothing is written from then on") {
    Writer writer({.path = "/dev/full", .node = "n", .host = "node0"});
    for (int i = 0; i < 100; ++i) writer.hosted(i);
    REQUIRE(test::run_until(writer.loop, [&] { return !writer.errors.empty(); }));
    for (int i = 0; i < 100; ++i) writer.hosted(i);
    writer.end();
    REQUIRE(writer.errors.size() == 1);
    CHECK(to_string(writer.errors[0]) == "write /dev/full: No space left on device");
  }

  TEST_CASE("a folder that is not there is said once") {
    Writer writer({.path = "/nowhere/timeline.json", .node = "n", .host = "node0"});
    writer.hosted(1);
    writer.end();
    REQUIRE(writer.errors.size() == 1);
    CHECK(to_string(writer.errors[0]).find("/nowhere/timeline.json: No such file") !=
          std::string::npos);
  }

  TEST_CASE("a disk that stands still is said once, also where it fails when it goes on") {
    test::TempDir base;
    std::string path = base.path() + "/timeline.json";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);  // stands still until it has a reader
    Writer writer({.path = path, .node = "n", .host = "node0"});
    writer.hosted(1);
    writer.end();
    CHECK(writer.errors.size() == 1);
    ::close(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
    writer.end();
    REQUIRE(writer.errors.size() == 1);
    CHECK(to_string(writer.errors[0]).find("the disk stands still") != std::string::npos);
  }
}
