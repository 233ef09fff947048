// SPDX-License-Identifier: BSD-3-Clause
//
// With a tool of this test's own in place of py-spy.
#include "agent/stack_show.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "tests/agent/sleeping_workers.h"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

// Two workers, and a tool that is a shell script.
struct Job : test::SleepingWorkers {
  std::optional<std::string> said;
  StackShow show;

  explicit Job(const std::string& script)
      : show(loop.get_executor(), reaper, disk,
             {.environment = {"PATH=/usr/bin:/bin"}, .search_path = folder.path()}, workers,
             [this](std::string text) { said = std::move(text); }) {
    make_py_spy("#!/bin/sh\n" + script + '\n');
    for (int rank : {4, 5}) start({.local_rank = rank - 4, .rank = rank, .folder = folder.path()});
  }
  ~Job() { end(show); }
  rendezvous::NodeStacks answer(std::uint64_t number, std::optional<int> rank = std::nullopt) {
    said.reset();
    show.begin({.round = 0, .number = number, .rank = rank});
    REQUIRE(test::run_until(loop, [this] { return said.has_value(); }));
    auto stacks = rendezvous::decode_stacks(*said, 8);
    REQUIRE(stacks);
    return *stacks;
  }
};

}  // namespace

TEST_SUITE("agent/stack_show") {
  TEST_CASE("each worker is shown, goes on, and keeps the stacks that it had") {
    Job job("echo 'Thread 1 (idle): \"MainThread\"'; echo '    load (data.py:40)'");
    std::ofstream(job.folder.path() + "/stack.py-spy") << "of a hang\n";
    auto stacks = job.answer(7);
    CHECK(stacks.number == 7);
    CHECK(stacks.tools == std::vector<std::string>{"py-spy"});
    REQUIRE(stacks.workers.size() == 2);
    CHECK(stacks.workers[1].rank == 5);
    CHECK(stacks.workers[1].place == "load (data.py:40)");
    CHECK(stacks.workers[1].frames == std::vector<std::string>{"load (data.py:40)"});
    CHECK(job.ended == 0);
    CHECK(std::filesystem::file_size(job.folder.path() + "/stack.py-spy") == 10);
    CHECK(job.answer(8).number == 8);
  }

  TEST_CASE("of one rank no other worker is held") {
    Job job("echo $2 >> \"$(dirname $0)/asked\"; echo nothing");
    CHECK(job.answer(1, 5).workers.size() == 1);
    std::ifstream asked(job.folder.path() + "/asked");
    CHECK(std::count(std::istreambuf_iterator<char>(asked), {}, '\n') == 1);
  }

  TEST_CASE("what a tool says that finds no stack is the reason") {
    Job job("echo; echo 'Error: Permission Denied' >&2; echo 'Error: Permission Denied'");
    auto stacks = job.answer(1);
    CHECK(stacks.workers[0].frames.empty());
    CHECK(stacks.workers[0].problem == "Error: Permission Denied");
  }

  TEST_CASE("one that is interrupted gets no answer, and the next one does") {
    Job job("if ! [ -e \"$(dirname $0)/again\" ]; then exec sleep 1000; fi; echo none");
    job.show.begin({.round = 0, .number = 1});
    CHECK_FALSE(test::run_until(
        job.loop, [&] { return job.said.has_value(); }, std::chrono::milliseconds(300)));
    job.show.interrupt();
    std::ofstream(job.folder.path() + "/again") << "";
    job.loop.restart();
    // A request that comes while the first one is still ending is dropped, so it is repeated.
    CHECK(test::run_until(job.loop, [&] {
      job.show.begin({.round = 0, .number = 2});
      return job.said.has_value();
    }));
    CHECK(rendezvous::decode_stacks(*job.said, 8)->number == 2);
  }
}
