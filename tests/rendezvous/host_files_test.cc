// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host_files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/clock.h"
#include "tests/support/event_loop.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

// A process that uses the folder.  Its disk answers at once, or not at all.
struct User {
  asio::io_context loop{1};
  bool stands_still = false;
  std::vector<std::function<void()>> held;
  std::unique_ptr<HostFiles> files;

  explicit User(const std::string& folder, const std::string& node = "a-1") {
    HostFilesConfig config{.folder = folder, .run = "run", .node = node, .on_disk = {}};
    config.on_disk = [this](const std::string&, const std::function<void()>& work,
                            std::function<void()> done) {
      auto call = [this, work, done = std::move(done)] {
        work();
        asio::post(loop, done);
      };
      if (!stands_still) return call();
      held.emplace_back(std::move(call));
    };
    files = std::make_unique<HostFiles>(loop.get_executor(), std::move(config));
  }

  template <class T>
  Result<T> run(store::Async<T> call) {
    std::optional<Result<T>> result;
    asio::co_spawn(loop, std::move(call), [&](std::exception_ptr error, Result<T> value) {
      REQUIRE(error == nullptr);
      result = std::move(value);
    });
    REQUIRE(test::run_until(loop, [&] { return result.has_value(); }));
    return std::move(*result);
  }
  HostEntry newest() { return run(files->newest()).value(); }
  bool claim(HostEntry entry) { return run(files->claim(std::move(entry))).value(); }
  bool note(HostEntry entry) { return run(files->note(std::move(entry))).value(); }
};

HostEntry entry_of(std::uint64_t generation, const std::string& node = "a-1") {
  return {.generation = generation, .node = node, .at = {.host = "10.0.0.1", .port = 4000}};
}

HostEntry with_round(HostEntry entry, std::uint64_t round) {
  entry.says_file = true;
  entry.file = RunFile{.run = "run",
                       .run_uuid = "a-1",
                       .round = round,
                       .lease = std::chrono::seconds(5),
                       .nodes = {"a-1", "b-1"},
                       .by = "a-1@g"};
  return entry;
}

std::size_t files_in(const std::string& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_SUITE("rendezvous/host_files") {
  TEST_CASE("a generation is claimed once, and the newest is read by all") {
    test::TempDir folder;
    User a(folder.path(), "a-1");
    User b(folder.path(), "b-1");
    CHECK(a.files->name() == "file:" + folder.path());
    CHECK(a.newest().generation == 0);
    CHECK(a.claim(entry_of(1, "a-1")));
    CHECK_FALSE(b.claim(entry_of(1, "b-1")));
    CHECK_FALSE(b.claim(entry_of(3, "b-1")));
    HostEntry seen = b.newest();
    CHECK(seen.generation == 1);
    CHECK(seen.node == "a-1");
    CHECK(seen.at == Endpoint{.host = "10.0.0.1", .port = 4000});
    CHECK_FALSE(seen.is_over);
    CHECK(b.claim(entry_of(2, "b-1")));
    CHECK_FALSE(a.note(entry_of(1, "a-1")));
    CHECK(a.newest().node == "b-1");
    CHECK(files_in(folder.path()) == 2);
  }

  TEST_CASE("of many that claim at one time one succeeds, each time") {
    constexpr int kUsers = 8;
    constexpr std::uint64_t kGenerations = 50;
    test::TempDir folder;
    std::vector<std::vector<std::uint64_t>> won(kUsers);
    std::vector<std::thread> threads;
    for (int i = 0; i < kUsers; ++i) {
      threads.emplace_back([&, i] {
        std::string node = "n" + std::to_string(i);
        User user(folder.path(), node);
        for (std::uint64_t newest = 0; newest < kGenerations; newest = user.newest().generation) {
          if (user.claim(entry_of(newest + 1, node))) won[i].push_back(newest + 1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<std::uint64_t> all;
    for (const auto& each : won) all.insert(all.end(), each.begin(), each.end());
    std::ranges::sort(all);
    REQUIRE(all.size() == kGenerations);
    for (std::uint64_t i = 0; i < kGenerations; ++i) CHECK(all[i] == i + 1);
  }

  // A host notes its first round, and another process claims at the same time.
  TEST_CASE("either a host hears that another one has claimed, or that one reads what it noted") {
    test::TempDir folder;
    User a(folder.path(), "a-1");
    User b(folder.path(), "b-1");
    int superseded = 0;
    constexpr std::uint64_t kTimes = 1000;
    for (std::uint64_t time = 0; time < kTimes; ++time) {
      CHECK(a.claim(entry_of(time * 2 + 1, "a-1")));
      bool is_noted = false;
      bool is_read = false;
      std::thread other([&] {
        CHECK(b.claim(entry_of(time * 2 + 2, "b-1")));
        auto file = b.newest().file;
        is_read = file && file->round == time + 1;
      });
      is_noted = a.note(with_round(entry_of(time * 2 + 1, "a-1"), time + 1));
      other.join();
      REQUIRE((!is_noted || is_read));
      superseded += is_noted ? 0 : 1;
    }
    MESSAGE(superseded << " of " << kTimes << " hosts were superseded");
  }

  TEST_CASE("what a host has said of the run's workers holds until a later one says otherwise") {
    test::TempDir folder;
    User user(folder.path());
    CHECK(user.claim(entry_of(1)));
    CHECK_FALSE(user.newest().file.has_value());
    CHECK(user.note(with_round(entry_of(1), 4)));
    CHECK(user.newest().file->round == 4);
    // One that has not had a round yet, and one more.
    CHECK(user.claim(entry_of(2)));
    CHECK(user.claim(entry_of(3)));
    CHECK(user.newest().generation == 3);
    CHECK(user.newest().file->round == 4);
    CHECK(user.note(with_round(entry_of(3), 0)));  // the run has begun anew
    CHECK(user.newest().file->round == 0);
    HostEntry none = entry_of(3);
    none.says_file = true;
    none.is_over = true;
    CHECK(user.note(none));
    CHECK(user.newest().is_over);
    CHECK_FALSE(user.newest().file.has_value());
  }

  TEST_CASE("old entries are removed, but not what still holds") {
    test::TempDir folder;
    User user(folder.path());
    for (std::uint64_t g = 1; g <= 40; ++g) {
      CHECK(user.claim(entry_of(g)));
      if (g == 3) CHECK(user.note(with_round(entry_of(g), 7)));
    }
    CHECK(user.newest().file->round == 7);
    CHECK(files_in(folder.path()) == 17);
    // A process that saw the folder long ago.
    CHECK_FALSE(user.claim(entry_of(4)));
    CHECK(user.newest().generation == 40);
  }

  TEST_CASE("two runs in one folder do not see each other, nor what else is there") {
    test::TempDir folder;
    User user(folder.path());
    CHECK(user.claim(entry_of(1)));
    User other(folder.path());
    HostFilesConfig config{.folder = folder.path(), .run = "another", .node = "c-1", .on_disk = {}};
    config.on_disk = [&other](const std::string&, const std::function<void()>& work,
                              std::function<void()> done) {
      work();
      asio::post(other.loop, std::move(done));
    };
    other.files = std::make_unique<HostFiles>(other.loop.get_executor(), std::move(config));
    CHECK(other.newest().generation == 0);
    CHECK(other.claim(entry_of(1, "c-1")));
    std::ofstream(folder.path() + "/notes.txt") << "mine";
    CHECK(user.newest().node == "a-1");
  }

  TEST_CASE("an entry that cannot be read is named, and nothing is claimed beside it unseen") {
    test::TempDir folder;
    User user(folder.path());
    CHECK(user.claim(entry_of(1)));
    std::string name = fs::directory_iterator(folder.path())->path().string();
    std::ofstream(name) << "{";
    auto newest = user.run(user.files->newest());
    REQUIRE_FALSE(newest.has_value());
    CHECK(to_string(newest.error()) == name + " is no entry of this version: it is no JSON object");
    CHECK_FALSE(user.claim(entry_of(1)));
  }

  TEST_CASE("a disk that stands still fails the call in time, and later calls wait for it") {
    test::TempDir folder;
    User user(folder.path());
    user.stands_still = true;
    MonoTime began = mono_now();
    auto newest = user.run(user.files->newest());
    REQUIRE_FALSE(newest.has_value());
    CHECK(newest.error().code == Errc::TimedOut);
    CHECK(to_string(newest.error()) == "file:" + folder.path() + ": the disk stands still");
    CHECK(mono_now() - began >= kRegistryPatience);
    CHECK(mono_now() - began < kRegistryPatience * 3);
    auto second = user.run(user.files->claim(entry_of(1)));
    CHECK(second.error().code == Errc::TimedOut);
    CHECK(user.held.size() == 1);  // no more calls gather
    user.stands_still = false;
    for (auto& call : std::exchange(user.held, {})) call();
    CHECK(user.claim(entry_of(1)));
  }

  TEST_CASE("a folder that is gone may come back, and after close() nothing is asked") {
    test::TempDir folder;
    const std::string path = folder.path() + "/run";
    fs::create_directory(path);
    fs::permissions(path, fs::perms::owner_all);
    User user(path);
    CHECK(user.claim(entry_of(1)));
    fs::rename(path, path + ".away");
    auto newest = user.run(user.files->newest());
    REQUIRE_FALSE(newest.has_value());
    CHECK(newest.error().code == Errc::Closed);
    CHECK(to_string(newest.error()) == "the folder " + path + " does not exist");
    CHECK_FALSE(user.run(user.files->note(entry_of(1))).has_value());
    fs::rename(path + ".away", path);
    CHECK(user.newest().generation == 1);
    user.files->close();
    CHECK(user.run(user.files->newest()).error().code == Errc::Closed);
  }

  TEST_CASE("only a folder that no other user can change will do") {
    test::TempDir folder;
    const std::string path = folder.path();
    CHECK(check_host_folder(path).has_value());
    auto problem = [](const std::string& of) {
      auto checked = check_host_folder(of);
      REQUIRE_FALSE(checked.has_value());
      CHECK(checked.error().code == Errc::InvalidInput);
      return to_string(checked.error());
    };
    for (unsigned mode : {0720U, 0702U, 0777U}) {
      REQUIRE(::chmod(path.c_str(), mode) == 0);
      CHECK(problem(path) == "the folder " + path +
                                 " can be changed by other users, who could move the run; chmod "
                                 "go-w helps");
    }
    // As /tmp: its mode is right, so another folder is needed.
    REQUIRE(::chmod(path.c_str(), 01777) == 0);
    CHECK(problem(path) ==
          "the folder " + path +
              " is shared with other users, who could move the run; mkdir -m 700 " + path +
              "/NAME makes one that is yours alone");
    CHECK(problem("/tmp").starts_with("the folder /tmp is shared with other users, "));
    REQUIRE(::chmod(path.c_str(), 0755) == 0);
    CHECK(check_host_folder(path).has_value());
    CHECK(problem(path + "/none/run") ==
          "the folder " + path + "/none/run does not exist, and neither does " + path + "/none");
    std::ofstream(path + "/file") << "x";
    CHECK(problem(path + "/file") == "the folder " + path + "/file is no folder");
  }

  TEST_CASE("a folder that may be away for a while is not taken for a wrong one") {
    test::TempDir folder;
    const std::string path = folder.path() + "/run";
    auto missing = check_host_folder(path);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().code == Errc::Closed);
    CHECK(to_string(missing.error()) == "the folder " + path + " does not exist");
  }
}
