// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/directory.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/temp_dir.h"
#include "worker/checkpoint/mapped_file.h"

namespace {

namespace fs = std::filesystem;
using namespace ddprun::ddp;

// A folder of checkpoints, gone with the test.
struct Directory {
  ddprun::test::TempDir folder;
  fs::path path = folder.path();

  fs::path publish(std::int64_t step, const std::string& content = "content") const {
    return publish_checkpoint(path,
                              {.step = step, .world_size = 1, .torch_version = "", .files = {}},
                              {{"a", {content}}, {"b", {"in ", "", "pieces"}}})
        .value();
  }

  // "3 2 1": the steps that are there, newest first.
  std::string steps() const {
    std::string text;
    for (const FoundCheckpoint& found : list_checkpoints(path)) {
      text += (text.empty() ? "" : " ") + std::to_string(found.step);
    }
    return text;
  }
};

int dead_process() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  REQUIRE(::waitpid(pid, nullptr, 0) == pid);
  return pid;
}

void overwrite(const fs::path& file, const std::string& content) {
  std::ofstream(file, std::ios::trunc) << content;
}

}  // namespace

TEST_SUITE("ddp/checkpoint/directory") {
  TEST_CASE_FIXTURE(Directory, "what is published is listed, verified and read") {
    fs::path place = publish(7);
    CHECK(place == path / "step-000000000007");
    Manifest manifest = verify_checkpoint(place).value();
    CHECK(manifest.step == 7);
    REQUIRE(manifest.files.size() == 2);
    CHECK(map_checkpoint_file(place, manifest.files[1]).value().bytes() == "in pieces");
    publish(12);
    publish(9);
    CHECK(steps() == "12 9 7");
  }

  TEST_CASE_FIXTURE(Directory, "a checkpoint of the same step is replaced") {
    publish(7, "old");
    fs::path place = publish(7, "new");
    CHECK(map_checkpoint_file(place, verify_checkpoint(place).value().files[0]).value().bytes() ==
          "new");
    CHECK(std::distance(fs::directory_iterator(path), fs::directory_iterator()) == 1);
  }

  TEST_CASE_FIXTURE(Directory, "who is left over from an earlier round of the run writes nothing") {
    auto publish_as = [&](std::int64_t step, const std::string& run_uuid, int round) {
      Manifest manifest{.step = step, .world_size = 1, .torch_version = "", .files = {}};
      manifest.generation = {.run_uuid = run_uuid, .round = round};
      return publish_checkpoint(path, manifest, {{"a", {"content"}}});
    };
    REQUIRE(publish_as(10, "run", 2).has_value());
    REQUIRE(publish_as(20, "run", 3).has_value());
    REQUIRE(publish_as(15, "run", 3).has_value());  // the same workers again
    auto refused = publish_as(30, "run", 2);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ddprun::make_error_code(ddprun::Errc::Refused));
    CHECK(to_string(refused.error()) ==
          path.string() +
              "/step-000000000020 was written in round 3 of this run, and this process "
              "is left over from round 2: it writes nothing more");
    CHECK_FALSE(publish_as(10, "run", 2).has_value());  // nor in the place of its own
    CHECK(steps() == "20 15 10");
    CHECK(std::distance(fs::directory_iterator(path), fs::directory_iterator()) == 3);
    CHECK(publish_as(40, "another run", 0).has_value());
    CHECK(publish_as(50, "", 0).has_value());  // started by another launcher
    CHECK(publish_as(60, "run", 4).has_value());
  }

  TEST_CASE_FIXTURE(Directory, "damage is found and named") {
    fs::path place = publish(1);
    std::string prefix = place.string() + ": ";

    overwrite(place / "a", "CONTENT");
    CHECK(inspect_checkpoint(place).has_value());
    CHECK(verify_checkpoint(place).error().context == prefix + "a does not match its checksum");

    overwrite(place / "a", "cut");
    CHECK(inspect_checkpoint(place).error().context == prefix + "a has 3 bytes instead of 7");

    fs::remove(place / "a");
    CHECK(inspect_checkpoint(place).error().context == prefix + "a is missing");

    fs::remove(place / "manifest.json");
    CHECK(inspect_checkpoint(place).error().context == prefix + "it has no readable manifest.json");
  }

  TEST_CASE_FIXTURE(Directory, "what cannot be read is not called damaged") {
    const auto kDamaged = ddprun::make_error_code(ddprun::Errc::Protocol);
    fs::path place = publish(1);
    fs::remove(place / "a");
    fs::create_symlink("a", place / "a");  // leads to itself: ELOOP
    CHECK(inspect_checkpoint(place).error().code == std::errc::too_many_symbolic_link_levels);
    fs::remove(place / "manifest.json");
    fs::create_symlink("manifest.json", place / "manifest.json");
    CHECK(inspect_checkpoint(place).error().code == std::errc::too_many_symbolic_link_levels);
    CHECK(inspect_checkpoint(path / "none").error().code == kDamaged);
  }

  TEST_CASE_FIXTURE(Directory, "a file that the disk cannot read is an error, and not SIGBUS") {
    overwrite(path / "file", std::string(1 << 20, 'x'));
    auto file = MappedFile::open(path / "file");
    REQUIRE(file.has_value());
    CHECK(file->read_ahead().has_value());
    fs::resize_file(path / "file", 0);  // to look at these pages is SIGBUS, as with a bad disk
    ddprun::Result<void> read = file->read_ahead();
    const bool is_old_kernel = read.has_value();
    if (is_old_kernel) {
      MESSAGE("skipped: this kernel has no MADV_POPULATE_READ");
    } else {
      CHECK(read.error().code == std::errc::io_error);
    }
  }

  TEST_CASE_FIXTURE(Directory, "a sharded checkpoint of thousands of ranks is read again") {
    Manifest manifest{.step = 3, .world_size = 20'000, .torch_version = "", .files = {}};
    auto hidden = begin_checkpoint(path, 3, {});
    REQUIRE(hidden.has_value());
    for (int i = 0; i < 20'000; ++i) manifest.files.push_back({"a", 7, 1});
    auto place = finish_checkpoint(path, *hidden, manifest, {{"a", {"content"}}});
    REQUIRE(place.has_value());
    CHECK(inspect_checkpoint(*place).value().files.size() == 20'001);
  }

  TEST_CASE_FIXTURE(Directory, "pruning keeps the newest, and never counts a damaged one") {
    for (int step = 1; step <= 5; ++step) publish(step);
    overwrite(path / "step-000000000005" / "a", "");
    overwrite(path / "step-000000000003" / "a", "");
    REQUIRE(prune_checkpoints(path, {.keep_last = 2}, {}).has_value());
    CHECK(steps() == "5 4 3 2");  // 4 and 2 are whole; 5 and 3 are for a person to look at
    REQUIRE(prune_checkpoints(path, {.keep_last = 0}, {}).has_value());
    CHECK(steps() == "5 4");  // the only good one stays, whatever is asked
  }

  TEST_CASE_FIXTURE(Directory, "what others have named step-5 is none of ours, and stays") {
    for (const char* name : {"step-5", "step-0000000000-1", "step-000000000000002"}) {
      fs::create_directory(path / name);
      overwrite(path / name / ".metadata", "theirs");
    }
    for (int step = 6; step <= 9; ++step) publish(step);
    CHECK(steps() == "9 8 7 6");
    REQUIRE(prune_checkpoints(path, {.keep_last = 1}, {}).has_value());
    CHECK(steps() == "9");
    CHECK(std::distance(fs::directory_iterator(path), fs::directory_iterator()) == 4);
    CHECK(publish(1'234'567'890'123).filename() == "step-1234567890123");
    CHECK(steps() == "1234567890123 9");
  }

  TEST_CASE_FIXTURE(Directory, "two of one step may be written at once, and both are whole") {
    const Manifest manifest{.step = 3, .world_size = 1, .torch_version = "", .files = {}};
    const fs::path one = begin_checkpoint(path, 3, {}).value();
    const fs::path other = begin_checkpoint(path, 3, {}).value();
    CHECK(one != other);
    CHECK(finish_checkpoint(path, one, manifest, {{"a", {"one"}}}).has_value());
    CHECK(verify_checkpoint(path / "step-000000000003").has_value());
    CHECK(finish_checkpoint(path, other, manifest, {{"a", {"other"}}}).has_value());
    CHECK(verify_checkpoint(path / "step-000000000003").has_value());
    CHECK(std::distance(fs::directory_iterator(path), fs::directory_iterator()) == 1);
  }

  TEST_CASE_FIXTURE(Directory, "pruning does not remove what this process wrote for an older run") {
    for (int step : {70, 80, 90}) publish(step);
    std::vector<fs::path> written;
    for (int step : {10, 20, 30}) {
      written.push_back(publish(step));
      REQUIRE(prune_checkpoints(path, {.keep_last = 2}, written).has_value());
      CHECK(fs::exists(written.back()));
    }
    CHECK(steps() == "90 80 70 30 20");  // those ahead are not this run's to remove
    publish(25);                         // by another program
    written.push_back(publish(28));      // the counter went back
    REQUIRE(prune_checkpoints(path, {.keep_last = 2}, written).has_value());
    CHECK(steps() == "90 80 70 30 28");  // the last two written
  }

  TEST_CASE_FIXTURE(Directory, "pruning after a restart keeps the newest of both lives") {
    for (int step : {10, 20, 30}) publish(step);
    const std::vector<fs::path> written{publish(40)};
    REQUIRE(prune_checkpoints(path, {.keep_last = 3}, written).has_value());
    CHECK(steps() == "40 30 20");
  }

  TEST_CASE_FIXTURE(Directory, "pruning keeps every so many, and the best") {
    auto publish_measured = [&](std::int64_t step, std::optional<double> metric) {
      Manifest manifest{.step = step, .world_size = 1, .torch_version = "", .files = {}};
      manifest.metric = metric;
      return publish_checkpoint(path, manifest, {{"a", {"content"}}}).value();
    };
    publish_measured(10, 0.5);
    publish_measured(20, 0.2);
    publish_measured(30, std::nullopt);
    publish_measured(40, 0.2);
    publish_measured(50, 0.9);
    publish_measured(60, 0.1);
    overwrite(path / "step-000000000060" / "a", "");  // damaged
    publish_measured(70, 0.4);
    REQUIRE(list_by_metric(path, Best::Lowest).size() == 5);
    CHECK(list_by_metric(path, Best::Lowest)[0].step == 40);
    CHECK(list_by_metric(path, Best::Lowest)[1].step == 20);
    CHECK(list_by_metric(path, Best::Highest)[0].step == 50);
    auto prune = [&](const Retention& retention) {
      REQUIRE(prune_checkpoints(path, retention, {}).has_value());
      return steps();
    };
    CHECK(prune({.keep_last = 5, .keep_every = 20}) == "70 60 50 40 30 20");
    CHECK(prune({.keep_last = 1, .keep_every = 20, .keep_best = Best::Highest}) ==
          "70 60 50 40 20");
    CHECK(prune({.keep_last = 1, .keep_best = Best::Lowest}) == "70 40");
    publish_measured(80, 0.1);  // is the best and the newest
    CHECK(prune({.keep_last = 1, .keep_best = Best::Lowest}) == "80");
  }

  TEST_CASE_FIXTURE(Directory, "a damaged checkpoint is set aside under a name that is free") {
    publish(1);
    for (const char* name : {".damaged-step-000000000001", ".damaged-step-000000000001-2"}) {
      CHECK(set_aside(publish(1)).value() == path / name);
      CHECK(fs::exists(path / name / "manifest.json"));
    }
    CHECK(steps() == "");
  }

  TEST_CASE_FIXTURE(Directory, "what a killed writer left is not a checkpoint, and is swept") {
    publish(3);
    const fs::path left = path / unfinished_name(4, dead_process());
    fs::create_directory(left);
    overwrite(left / "a", "half");
    fs::create_directory(path / "step-x");
    overwrite(path / "notes.txt", "the user's");
    CHECK(steps() == "3");
    sweep_unfinished(path);
    CHECK(!fs::exists(left));
    CHECK(fs::exists(path / "step-x"));
    CHECK(fs::exists(path / "notes.txt"));
  }

  TEST_CASE_FIXTURE(Directory, "a save under way in a process that lives is not swept") {
    const fs::path parents = path / unfinished_name(4, ::getppid());
    const fs::path elsewhere = path / ".unfinished-step-000000000004-1-another_host";
    for (const fs::path& save : {parents, elsewhere}) fs::create_directory(save);
    sweep_unfinished(path);
    CHECK(fs::exists(parents));
    CHECK(fs::exists(elsewhere));
    for (const fs::path& save : {parents, elsewhere}) {
      fs::last_write_time(save, fs::file_time_type::clock::now() - std::chrono::hours(2));
    }
    sweep_unfinished(path);  // a number of a process is used again, and hosts go
    CHECK(!fs::exists(parents));
    CHECK(!fs::exists(elsewhere));
  }

  TEST_CASE_FIXTURE(Directory, "a checkpoint whose replacement was cut short is put back") {
    const fs::path place = publish(5);
    const std::string unfinished = unfinished_name(5, dead_process());
    const fs::path aside = path / (".replaced-" + unfinished.substr(sizeof ".unfinished-" - 1));
    fs::rename(place, aside);
    put_back_replaced(path);
    CHECK(verify_checkpoint(place).has_value());
    publish(6);
    fs::copy(place, aside, fs::copy_options::recursive);
    put_back_replaced(path);  // the new one stands
    CHECK(!fs::exists(aside));
    CHECK(steps() == "6 5");
  }

  TEST_CASE_FIXTURE(Directory, "a failed save leaves nothing behind and the old ones whole") {
    publish(1);
    ddprun::Result<fs::path> failed =
        publish_checkpoint(path, {.step = 2, .world_size = 1, .torch_version = "", .files = {}},
                           {{"a", {"x"}}, {"no/such/folder", {"y"}}});
    CHECK(to_string(failed.error()).ends_with("no/such/folder: No such file or directory"));
    CHECK(steps() == "1");
    CHECK(std::distance(fs::directory_iterator(path), fs::directory_iterator()) == 1);
    CHECK(verify_checkpoint(path / "step-000000000001").has_value());
  }

  TEST_CASE_FIXTURE(Directory, "each new run has a folder of its own, and a restart finds it") {
    CHECK(run_directory(path, "job", false).value() == path / "job-1");
    CHECK(run_directory(path, "job", true).value() == path / "job-1");
    CHECK(run_directory(path, "job", false).value() == path / "job-2");
    CHECK(run_directory(path, "job", true).value() == path / "job-2");
    CHECK(run_directory(path, "job-2", true).value() == path / "job-2-1");
    CHECK(run_directory(path, "../up", false).value() == path / "_.._up-1");
    CHECK(run_directory(path / "deeper", "", true).value() == path / "deeper" / "_-1");
  }
}
