// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/vitals_book.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

TEST_SUITE("agent/decide/vitals_book") {
  TEST_CASE("the CPU time since the look before gives the percentage") {
    VitalsBook book;
    MonoTime now{1h};
    book.begin(4, now);
    WorkerSample sample{.local_rank = 1, .pid = 7, .state = 'R', .cpu_time = 3s, .rss_kib = 10};
    auto vitals = book.take({sample}, now += 2s);
    CHECK(vitals.round == 4);
    CHECK(vitals.number == 1);
    CHECK(vitals.workers[0].cpu_percent == 150);
    sample.cpu_time = 3500ms;
    CHECK(book.take({sample}, now += 2s).workers[0].cpu_percent == 25);
    // A child that it had has ended, with its time.
    sample.cpu_time = 1s;
    CHECK(book.take({sample}, now += 2s).workers[0].cpu_percent == 0);
    // Another process has its place.
    sample.pid = 8;
    CHECK(book.take({sample}, now += 2s).workers[0].cpu_percent == 50);
    CHECK(book.take({sample}, now).workers[0].cpu_percent == 0);
  }

  TEST_CASE("the age of the output counts from the look that saw more of it") {
    VitalsBook book;
    MonoTime now{1h};
    book.begin(0, now);
    WorkerSample sample{.pid = 7};
    CHECK_FALSE(book.take({sample}, now += 2s).workers[0].output_age_ms);
    sample.output_bytes = 5;
    CHECK(book.take({sample}, now += 2s).workers[0].output_age_ms == 0);
    CHECK(book.take({sample}, now += 3s).workers[0].output_age_ms == 3000);
    book.begin(1, now);
    sample = {.pid = 9};
    CHECK_FALSE(book.take({sample}, now += 2s).workers[0].output_age_ms);
  }

  TEST_CASE("output that nobody sees whole has no size and no age") {
    VitalsBook book;
    MonoTime now{1h};
    book.begin(0, now);
    WorkerSample sample{.pid = 7, .output_bytes = 5, .is_output_seen = false};
    rendezvous::WorkerVitals worker = book.take({sample}, now += 2s).workers[0];
    CHECK_FALSE(worker.output_bytes);
    CHECK_FALSE(worker.output_age_ms);
    sample.is_output_seen = true;
    CHECK(book.take({sample}, now += 2s).workers[0].output_bytes == 5);
  }

  TEST_CASE("a heartbeat that was touched in the future is new") {
    VitalsBook book;
    WorkerSample sample{.pid = 7, .heartbeat_age = -5s};
    CHECK(book.take({sample}, MonoTime(1h)).workers[0].heartbeat_age_ms == 0);
  }

  TEST_CASE("a heartbeat file may begin with a step") {
    CHECK(step_in("4711") == 4711);
    CHECK(step_in("4711\nloss 3") == 4711);
    CHECK(step_in("12 of 30") == 12);
    for (const char* text : {"", "x", "12x", "-3", "99999999999999999999999", " 1"}) {
      CAPTURE(text);
      CHECK_FALSE(step_in(text));
    }
  }

  TEST_CASE("the last line is the last one that says something") {
    CHECK(last_line_of("a\nb\n\n  \n") == "b");
    CHECK(last_line_of("10 %\r20 %\r") == "20 %");
    CHECK(last_line_of("only") == "only");
    CHECK(last_line_of("\n \n") == "");
    CHECK(last_line_of("") == "");
  }
}
