// SPDX-License-Identifier: BSD-3-Clause
#include "agent/flight_recorder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::agent;
namespace fs = std::filesystem;
using Clock = std::chrono::system_clock;

namespace {

struct Dumps : test::TempDir {
  DumpsWanted wanted{.prefix = path() + "/trace_rank_",
                     .first_rank = 2,
                     .count = 2,
                     .since = Clock::now(),
                     .folder = path() + "/logs/flight_recorder",
                     .attempt = 1};
  void dump(int rank, const std::string& text) const {
    std::ofstream(wanted.prefix + std::to_string(rank)) << text;
  }
};

}  // namespace

TEST_SUITE("agent/flight_recorder") {
  TEST_CASE("the place is the one that the workers' environment names") {
    CHECK(dump_prefix({}).empty());
    CHECK(dump_prefix({{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/tmp/a"}}) == "/tmp/a");
    CHECK(dump_prefix({{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/tmp/a"},
                       {"TORCH_FR_DUMP_TEMP_FILE", "/tmp/b"}}) == "/tmp/b");
  }

  TEST_CASE_FIXTURE(Dumps, "the dumps of this node's ranks are copied") {
    dump(1, "another node's");
    dump(2, "two");
    auto copies = copy_dumps(wanted);
    REQUIRE(copies.has_value());
    REQUIRE(copies->size() == 1);
    CHECK(copies->front() == wanted.folder + "/attempt_1_rank_2");
    std::string text;
    std::ifstream(copies->front()) >> text;
    CHECK(text == "two");
  }

  TEST_CASE_FIXTURE(Dumps, "without a dump there is no folder") {
    CHECK(copy_dumps(wanted)->empty());
    CHECK_FALSE(fs::exists(wanted.folder));
  }

  TEST_CASE_FIXTURE(Dumps, "an older dump, a link and a FIFO are none") {
    dump(2, "old");
    fs::last_write_time(wanted.prefix + "2",
                        fs::file_time_type::clock::now() - std::chrono::hours(1));
    dump(9, "elsewhere");
    fs::create_symlink(wanted.prefix + "9", wanted.prefix + "3");
    CHECK(copy_dumps(wanted)->empty());
    fs::remove(wanted.prefix + "3");
    REQUIRE(::mkfifo((wanted.prefix + "3").c_str(), 0600) == 0);
    CHECK(copy_dumps(wanted)->empty());
  }

  TEST_CASE_FIXTURE(Dumps, "what somebody else may have put there is none") {
    dump(2, "two");
    fs::create_hard_link(wanted.prefix + "2", wanted.prefix + "9");
    if (::chown((wanted.prefix + "2").c_str(), 65534, 65534) == 0) {
      fs::remove(wanted.prefix + "9");
    }
    CHECK(copy_dumps(wanted)->empty());
  }

  TEST_CASE_FIXTURE(Dumps, "a folder that cannot be made is said") {
    dump(2, "two");
    std::ofstream(path() + "/logs") << "a file";
    auto copies = copy_dumps(wanted);
    REQUIRE_FALSE(copies.has_value());
    CHECK(to_string(copies.error()).find("attempt_1_rank_2") != std::string::npos);
  }
}
