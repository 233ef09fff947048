// SPDX-License-Identifier: BSD-3-Clause
#include "store/status.h"

#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <string>

#include "store/clock.h"

using namespace ddprun;
using namespace ddprun::store;
using namespace std::chrono_literals;

namespace {

// Pages that cost a millisecond and more.
struct CostlyPages : PageSource {
  mutable int made = 0;

  std::string make() const {
    for (auto end = thread_time() + 1ms; thread_time() < end;) {
    }
    return "# " + std::to_string(++made) + "\n";
  }
  std::string status(Reader) const override { return "\"made\": \"" + make() + "\""; }
  std::string metrics() const override { return make(); }
  std::optional<Page> page(const std::string& target) const override {
    return Page{.body = target + make()};
  }
};

struct Server {
  Namespaces namespaces{KeyspaceLimits{}, 1024, HashSeed{}};
  Sessions sessions;
  Status status{namespaces, sessions};
  CostlyPages pages;
  MonoTime now{1h};

  Server() { status.source = &pages; }

  Page get(const std::string& target, Reader reader = Reader::Stranger) {
    HttpReader request;
    REQUIRE(request.feed("GET " + target + " HTTP/1.1\r\n\r\n") == HttpReader::State::Done);
    return status.page_for(request, reader, now);
  }
};

}  // namespace

TEST_SUITE("store/status") {
  TEST_CASE_FIXTURE(Server, "a page that cost much is shown again for a while") {
    for (const char* target : {"/status", "/metrics", "/timeline/run"}) {
      CAPTURE(target);
      int before = pages.made;
      std::string first = get(target).body;
      now += 10ms;
      CHECK(get(target).body == first);
      CHECK(pages.made == before + 1);
      CHECK(get(target, Reader::Trusted).body != first);
      CHECK(pages.made == before + 2);
      now += 1h;
      CHECK(get(target).body != first);
    }
  }

  TEST_CASE_FIXTURE(Server, "who asks for another page of that kind meanwhile has to wait") {
    CHECK(get("/timeline/one").status == 200);
    CHECK(get("/timeline/two").status == 503);
    CHECK(get("/").status == 200);
    CHECK(get("/timeline/two", Reader::Trusted).status == 200);
    now += 1h;
    CHECK(get("/timeline/two").body.starts_with("/timeline/two"));
  }
}
