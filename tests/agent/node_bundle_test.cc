// SPDX-License-Identifier: BSD-3-Clause
//
// The files of a node: packed within a bound, masked, and given in pieces.
#include "agent/node_bundle.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <vector>

#include "agent/bundle/archive.h"
#include "rendezvous/decide/bundle_piece.h"
#include "tests/support/event_loop.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::agent;
using rendezvous::BundlePiece;

namespace {

using Entries = std::map<std::string, std::string>;

Fd in_memory(const std::string& bytes) {
  Fd file(::memfd_create("test", MFD_CLOEXEC));
  REQUIRE(::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  REQUIRE(::lseek(file.get(), 0, SEEK_SET) == 0);
  return file;
}

Entries entries_of(const std::string& packed) {
  Entries entries;
  auto read = read_archive(in_memory(packed), "it", {.text = kMaxEntryBytes},
                           [&](const TarEntry& entry, std::string text) -> Result<void> {
                             entries[entry.name] = std::move(text);
                             return {};
                           });
  CHECK(read.has_value());
  return entries;
}

std::string noise(std::size_t bytes) {
  std::mt19937 random(7);  // NOLINT: the same each time
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

struct LogTree {
  test::TempDir folder;
  NodeFiles files{.program = "ddprun 1.2",
                  .log_folder = folder.path(),
                  .environment_line = "# of a test",
                  .environment = {"HF_TOKEN=hunter2", "A=b"}};

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::path path = folder.path() + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
};

bool always() {
  return true;
}

struct Job : LogTree {
  boost::asio::io_context loop;
  std::vector<BundlePiece> said;
  NodeBundle bundle{loop.get_executor(), [this] { return files; },
                    [this](const std::string& text) {
                      auto piece = rendezvous::decode_bundle_piece(text);
                      REQUIRE(piece);
                      said.push_back(*piece);
                    }};

  ~Job() {
    bool is_done = false;
    boost::asio::co_spawn(loop, bundle.stop(), [&](std::exception_ptr) { is_done = true; });
    CHECK(test::run_until(loop, [&] { return is_done; }));
  }
  BundlePiece asked(std::uint64_t number, std::uint64_t piece, std::uint64_t most_bytes = 1 << 20) {
    std::size_t before = said.size();
    bundle.heard({.number = number, .most_bytes = most_bytes, .piece = piece});
    REQUIRE(test::run_until(loop, [&] { return said.size() > before; }));
    return said.back();
  }
};

}  // namespace

TEST_SUITE("agent/node_bundle") {
  TEST_CASE("a node's files are packed, and its secrets masked") {
    LogTree tree;
    tree.write("report.json", "{}");
    tree.write("attempt_0/0/stderr.log", noise(kMaxEntryBytes) + "the end");
    Entries entries = entries_of(packed_node(tree.files, 8 << 20, always));
    CHECK(entries["versions.txt"].starts_with("ddprun 1.2\nkernel "));
    CHECK(entries["environment.txt"] == "# of a test\nA=b\nHF_TOKEN=***\n");
    CHECK(entries["logs/report.json"] == "{}");
    CHECK(entries["logs/attempt_0/0/stderr.log"].size() == kMaxEntryBytes);
    CHECK(entries["logs/attempt_0/0/stderr.log"].ends_with("the end"));
    CHECK(entries["MANIFEST.txt"].find("stderr.log: the last MB of 1048583 bytes") !=
          std::string::npos);
    CHECK(entries.size() == 5);
  }

  TEST_CASE("it keeps its bound, and says what that leaves out") {
    LogTree tree;
    tree.write("report.json", "{}");
    tree.write("a/stdout.log", noise(200'000));
    for (int i = 0; i < 200; ++i) tree.write("b/" + std::to_string(i) + ".log", noise(3000));
    for (std::size_t most : {std::size_t{0}, kLeastNodeArchive, std::size_t{100'000}}) {
      CAPTURE(most);
      std::string packed = packed_node(tree.files, most, always);
      CHECK(packed.size() <= std::max(most, kLeastNodeArchive));
      Entries entries = entries_of(packed);
      CHECK(entries.contains("logs/report.json"));
      CHECK_FALSE(entries.contains("logs/a/stdout.log"));
      CHECK(entries["MANIFEST.txt"].find("left out, for --max-size") != std::string::npos);
    }
  }

  TEST_CASE("what takes too long, and a folder that is not there, are named") {
    LogTree tree;
    tree.write("report.json", "{}");
    Entries entries = entries_of(packed_node(tree.files, 1 << 20, [] { return false; }));
    CHECK_FALSE(entries.contains("logs/report.json"));
    CHECK(entries["MANIFEST.txt"].find("it took too long: report.json") != std::string::npos);
    tree.files.log_folder += "/none";
    entries = entries_of(packed_node(tree.files, 1 << 20, always));
    CHECK(entries["MANIFEST.txt"].find("no logs: open the log folder") != std::string::npos);
    tree.files.log_folder.clear();
    entries = entries_of(packed_node(tree.files, 1 << 20, always));
    CHECK(entries["MANIFEST.txt"].find("keeps no logs") != std::string::npos);
  }

  TEST_CASE("an archive that is cut, or has an entry beyond its limit, is damaged") {
    LogTree tree;
    tree.write("report.json", noise(5000));
    std::string packed = packed_node(tree.files, 1 << 20, always);
    auto ignore = [](const TarEntry&, const std::string&) { return Result<void>(); };
    CHECK(read_archive(in_memory(packed), "it", {}, ignore));
    CHECK_FALSE(read_archive(in_memory(packed), "it", {.entry = 4999}, ignore));
    for (std::size_t bytes : {packed.size() - 40, packed.size() / 2, std::size_t{0}})
      CHECK_FALSE(read_archive(in_memory(packed.substr(0, bytes)), "it", {}, ignore));
  }

  TEST_CASE("it says how much there is, then each piece, until nobody wants it") {
    Job job;
    job.write("a/stderr.log", noise(300'000));
    BundlePiece first = job.asked(4, 0);
    CHECK(first.number == 4);
    CHECK(first.piece == 0);
    CHECK(first.data.empty());
    CHECK(first.bytes > 300'000);
    CHECK(job.bundle.held_bytes() == first.bytes);
    std::string packed;
    for (std::uint64_t piece = 1; piece <= rendezvous::bundle_pieces(first.bytes); ++piece)
      packed += job.asked(4, piece).data;
    CHECK(packed.size() == first.bytes);
    CHECK(entries_of(packed)["logs/a/stderr.log"].size() == 300'000);
    // Of another request it has nothing.
    std::size_t before = job.said.size();
    job.bundle.heard({.number = 3, .most_bytes = 1 << 20, .piece = 1});
    CHECK(job.said.size() == before);
    CHECK(job.asked(4, 0, 0).bytes == 0);
    CHECK(job.bundle.held_bytes() == 0);
  }

  TEST_CASE("of several requests the last one is answered, and one that is given up is not") {
    Job job;
    job.write("a/stderr.log", noise(300'000));
    job.bundle.heard({.number = 1, .most_bytes = 1 << 20});
    job.bundle.heard({.number = 2, .most_bytes = 1 << 20});
    CHECK(job.asked(3, 0).number == 3);
    CHECK(job.said.size() == 1);
    job.bundle.heard({.number = 4, .most_bytes = 1 << 20});
    CHECK(job.asked(4, 0, 0).bytes == 0);
    CHECK(job.asked(5, 0).bytes > 0);
    CHECK(job.said.size() == 3);
  }
}
