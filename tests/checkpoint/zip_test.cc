// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/zip.h"

#include <doctest/doctest.h>

namespace {

namespace zip = ddprun::ddp::zip;

std::string archive_of(const std::vector<std::pair<std::string, std::string>>& records) {
  std::vector<zip::NewRecord> wanted;
  for (const auto& [name, bytes] : records) wanted.push_back({name, bytes.size()});
  zip::Layout layout = zip::lay_out(wanted);
  std::string file(layout.file_bytes, '\0');
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].second.copy(file.data() + layout.records[i].begin, records[i].second.size());
  }
  zip::complete(layout, file.data());
  return file;
}

std::string why(const std::string& file) {
  ddprun::Result<std::vector<zip::Record>> records = zip::read(file);
  return records ? "" : records.error().context;
}

// `file` with `text` from the `nth` place on at which `mark` stands, plus `shift`.
std::string with(std::string file, const std::string& mark, std::size_t shift,
                 const std::string& text) {
  std::size_t at = file.find(mark);
  REQUIRE(at != std::string::npos);
  return file.replace(at + shift, text.size(), text);
}

const std::string kCentral = "PK\x01\x02";
const std::string kEnd = "PK\x05\x06";

}  // namespace

TEST_SUITE("ddp/checkpoint/zip") {
  TEST_CASE("records are read back where they were put, at multiples of 64") {
    std::string file = archive_of({{"a/data.pkl", "abc"}, {"a/data/0", ""}, {"a/data/1", "12345"}});
    std::vector<zip::Record> records = zip::read(file).value();
    REQUIRE(records.size() == 3);
    CHECK(records[0].name == "a/data.pkl");
    CHECK(file.substr(records[0].begin, records[0].end - records[0].begin) == "abc");
    CHECK(records[1].begin == records[1].end);
    for (const zip::Record& record : records) CHECK(record.begin % 64 == 0);
    CHECK(zip::read(file + "a comment is not counted in").has_value() == true);
  }

  TEST_CASE("records and places of more than 32 bits are laid out with wide fields") {
    constexpr std::uint64_t kHuge = std::uint64_t{5} << 30;
    zip::Layout layout = zip::lay_out({{"x/0", kHuge}, {"x/1", 8}});
    CHECK(layout.records[0].end - layout.records[0].begin == kHuge);
    CHECK(layout.records[1].begin > kHuge);
    CHECK(layout.fragments.back().bytes.find("PK\x06\x06") != std::string::npos);
    CHECK(layout.fragments.back().bytes.find("PK\x06\x07") != std::string::npos);
  }

  TEST_CASE("what is not stored plainly within the file is refused by name") {
    const std::string good = archive_of({{"a/x", "abc"}, {"a/y", "12345"}});
    CHECK(why(good) == "");
    const std::string compressed =
        "the zip archive: record 'a/x' is compressed, which torch.save() never does; archives of "
        "TorchScript are not read";
    const std::string damaged = "the zip archive: its directory is damaged";
    CHECK(why("") == "the zip archive: it has no end, so it is cut short or no zip archive");
    CHECK(why(with(good, kCentral, 10, "\x08")) == compressed);
    CHECK(why(with(good, kCentral, 8, "\x01")) == compressed);
    CHECK(why(with(good, kCentral, 20, "\xff\xff\xff\x7f\xff\xff\xff\x7f")) ==
          "the zip archive: record 'a/x' is longer than the file");
    CHECK(why(with(good, kCentral, 20, "\xff\xff\xff\xff\xff\xff\xff\xff")) == damaged);
    CHECK(why(with(good, kCentral, 42, "\xff\xff\xff\x7f")) ==
          "the zip archive: record 'a/x' is not there");
    CHECK(why(with(good, kEnd, 10, "\xf0\xff")) ==
          "the zip archive: its directory is longer than the file");
    CHECK(why(with(good, kEnd, 16, "\xf0\xff\xff\x7f")) ==
          "the zip archive: its directory is longer than the file");
    CHECK(why(archive_of({{"a/x", "abc"}, {"a/x", "abc"}})) ==
          "the zip archive: record 'a/x' is there twice");
  }

  TEST_CASE("records that overlap are refused") {
    std::string file = archive_of({{"a/x", std::string(100, 'x')}, {"a/y", std::string(100, 'y')}});
    CHECK(why(with(file, kCentral, 20, std::string("\xf0\0\0\0\xf0\0\0\0", 8))) ==
          "the zip archive: records 'a/x' and 'a/y' overlap");
  }
}
