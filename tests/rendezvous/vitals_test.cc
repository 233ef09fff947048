// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/vitals.h"

#include <doctest/doctest.h>

#include <random>

using namespace ddprun::rendezvous;

namespace {

Vitals some() {
  WorkerVitals first{.local_rank = 0,
                     .state = 'S',
                     .pid = 4211,
                     .cpu_percent = 230,
                     .rss_kib = 1'234'567,
                     .output_bytes = 99,
                     .output_age_ms = 1500,
                     .heartbeat_age_ms = 20,
                     .step = 4711,
                     .gpu = GpuVitals{.used_mib = 40'000, .total_mib = 81'000, .busy_percent = 97},
                     .last_line = "epoch 3: loss 0.1"};
  return {.number = 7,
          .round = 3,
          .log_folder = "/shared/my logs/job_x",
          .workers = {first, {.local_rank = 1, .state = 'D', .pid = 4212}}};
}

}  // namespace

TEST_SUITE("rendezvous/decide/vitals") {
  TEST_CASE("what is written is read again") {
    CHECK(decode_vitals(encode(some()), 8) == some());
    CHECK(decode_vitals(encode(Vitals{}), 8) == Vitals{});
    Vitals partitioned = some();
    partitioned.workers[0].gpu->busy_percent.reset();
    CHECK(decode_vitals(encode(partitioned), 8) == partitioned);
  }

  TEST_CASE("of workers beyond those that the node has announced nothing is read") {
    auto vitals = decode_vitals(encode(some()), 1);
    REQUIRE(vitals);
    CHECK(vitals->workers.size() == 1);
  }

  TEST_CASE("a last line is one line of bounded length, and what a terminal obeys is quoted") {
    Vitals vitals = some();
    vitals.workers[0].last_line = "a\x1b[2Jb\nforged 1 2 3";
    auto read = decode_vitals(encode(vitals), 8);
    REQUIRE(read);
    REQUIRE(read->workers.size() == 2);
    CHECK(read->workers[0].last_line == "a\\x1b[2Jb\\x0aforged 1 2 3");
    vitals.workers[0].last_line = std::string(100'000, 'x');
    CHECK(decode_vitals(encode(vitals), 8)->workers[0].last_line.size() == kMaxLastLine);
    // Written by a stranger, without our encode().
    read = decode_vitals("vitals1 1 0\n0 R 1 0 0 0 - - - - \x1b]0;title\x07\n", 8);
    REQUIRE(read);
    CHECK(read->workers[0].last_line == "\\x1b]0;title\\x07");
  }

  TEST_CASE("a log folder is a path as it is, or none, and breaks no line") {
    Vitals vitals = some();
    vitals.log_folder = "/tmp/a\nb";
    CHECK(decode_vitals(encode(vitals), 8)->log_folder == "/tmp/a\\x0ab");
    vitals.log_folder = std::string(kMaxLogFolder + 1, 'x');
    CHECK(decode_vitals(encode(vitals), 8)->log_folder.empty());
    CHECK(decode_vitals("vitals1 1 0 " + vitals.log_folder + "\n", 8)->log_folder.empty());
    CHECK(decode_vitals("vitals1 1 0 /a\x1b[2J\n", 8)->log_folder == "/a\\x1b[2J");
  }

  TEST_CASE("what is no vitals is none") {
    for (const char* text :
         {"", "vitals1", "vitals1 1 0", "vitals2 1 0\n", "vitals1 x 0\n", "vitals1 1 -1\n",
          "vitals1 1 0\n0 R 1 0 0 0 - - -\n", "vitals1 1 0\n0 RR 1 0 0 0 - - - -\n",
          "vitals1 1 0\n0 ! 1 0 0 0 - - - -\n", "vitals1 1 0\n-1 R 1 0 0 0 - - - -\n",
          "vitals1 1 0\n99999999999 R 1 0 0 0 - - - -\n", "vitals1 1 0\n0 R 1 0 0 0 - - - 1 2\n",
          "vitals1 1 0\n0 R 1 0 0 0 - - - -"}) {
      CAPTURE(text);
      CHECK_FALSE(decode_vitals(text, 8));
    }
    CHECK_FALSE(decode_vitals(std::string(kMaxVitalsBytes + 1, '\n'), 8));
  }

  TEST_CASE("bytes of any kind are read or refused") {
    std::mt19937 random(1);
    const std::string good = encode(some());
    for (int i = 0; i < 20'000; ++i) {
      std::string text = good;
      for (int change = 0; change < 3; ++change)
        text[random() % text.size()] = static_cast<char>(random() % 256);
      text.resize(random() % (text.size() + 1));
      auto vitals = decode_vitals(text, 2);
      if (vitals) CHECK(vitals->workers.size() <= 2);
    }
  }
}
