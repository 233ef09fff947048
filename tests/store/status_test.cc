// SPDX-License-Identifier: BSD-3-Clause
#include "store/status.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
    return "# " + std::to_string(++made);
  }
  struct Text : PageText {
    explicit Text(std::vector<std::string> pieces_) : pieces(std::move(pieces_)) {}
    bool add(std::string& out) override {
      out += pieces.at(next++);
      return next < pieces.size();
    }
    std::vector<std::string> pieces;
    std::size_t next = 0;
  };

  int piece_count = 1;  // of the status and of long pages
  std::uint64_t events = 0;

  std::unique_ptr<PageText> text(std::string beginning, std::string end) const {
    std::vector<std::string> pieces(static_cast<std::size_t>(piece_count), ".");
    pieces.front() = std::move(beginning);
    pieces.back() += end;
    return std::make_unique<Text>(std::move(pieces));
  }
  std::uint64_t version() const override { return events; }
  std::unique_ptr<PageText> status(Reader) const override {
    return text("\"made\": \"" + make(), "\"");
  }
  std::unique_ptr<PageText> long_page(const std::string& target) const override {
    if (!target.starts_with("/long")) return nullptr;
    return text(target + make(), "");
  }
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

  Server() { status.show(&pages); }

  std::optional<PageAnswer> ask(const std::string& target, Reader reader = Reader::Stranger,
                                ClientId asker = 1) {
    HttpReader request;
    REQUIRE(request.feed("GET " + target + " HTTP/1.1\r\n\r\n") == HttpReader::State::Done);
    return status.page_for(request, reader, now, asker);
  }
  static Page page_of(const PageAnswer& answer) {
    Page page = answer.page;
    if (answer.body) page.body = answer.body.view();
    return page;
  }
  Page get(const std::string& target, Reader reader = Reader::Stranger) {
    auto answer = ask(target, reader);
    REQUIRE(answer.has_value());
    return page_of(*answer);
  }
  // Calls proceed() until a page is complete.
  Status::Made made() {
    for (;;) {
      REQUIRE(status.is_making());
      if (auto made = status.proceed(now)) return *made;
    }
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
    CHECK(get("/timeline/two").retry_after_s == 1);
    CHECK(get("/").status == 200);
    CHECK(get("/timeline/two", Reader::Trusted).status == 200);
    now += 1h;
    CHECK(get("/timeline/two").body.starts_with("/timeline/two"));
  }

  TEST_CASE_FIXTURE(Server, "a long page is made in pieces, once for all who ask meanwhile") {
    pages.piece_count = 4;
    for (std::string target : {"/status", "/long"}) {
      CAPTURE(target);
      int before = pages.made;
      CHECK(!ask(target, Reader::Stranger, 1).has_value());
      CHECK(!ask(target, Reader::Stranger, 2).has_value());
      CHECK(!status.proceed(now).has_value());
      CHECK(!ask(target, Reader::Stranger, 3).has_value());
      auto complete = made();
      CHECK(complete.askers == std::vector<ClientId>{1, 2, 3});
      CHECK(!complete.is_event);
      std::string body = page_of(complete.answer).body;
      CHECK(body.find("...") != std::string::npos);
      CHECK(pages.made == before + 1);
      CHECK(!status.is_making());
      CHECK(get(target).body == body);
    }
    CHECK(get("/status").body.ends_with("...\"}\n"));
  }

  TEST_CASE_FIXTURE(Server, "while one is made, another one of that kind has to wait") {
    pages.piece_count = 2;
    CHECK(!ask("/long/1").has_value());
    CHECK(get("/long/2").status == 503);
    CHECK(!ask("/long/2", Reader::Trusted).has_value());
    CHECK(get("/").status == 200);
  }

  TEST_CASE_FIXTURE(Server, "a page whose host goes meanwhile is none") {
    pages.piece_count = 3;
    CHECK(!ask("/status").has_value());
    status.show(nullptr);
    CHECK(made().answer.page.status == 503);
    CHECK(get("/status").body.find("made") == std::string::npos);
  }

  TEST_CASE_FIXTURE(Server, "those who follow get the status in one line, the same for all") {
    pages.piece_count = 3;
    REQUIRE(status.follow(Reader::Stranger, 7));
    REQUIRE(status.follow(Reader::Stranger, 8));
    status.make_events(now);
    auto first = made();
    CHECK(first.is_event);
    CHECK(first.askers == std::vector<ClientId>{7, 8});
    std::string event = page_of(first.answer).body;
    CHECK(event.starts_with("data: {\"connections\": "));
    CHECK(event.find('\n') == event.size() - 2);
    CHECK(event.ends_with("\"}\n\n"));
    status.unfollow(7);
    status.unfollow(8);
    CHECK(!status.has_followers());
  }

  TEST_CASE_FIXTURE(Server, "an event comes when something has happened, and else now and then") {
    REQUIRE(status.follow(Reader::Trusted, 7));
    auto is_made = [&] {
      status.make_events(now);
      if (!status.is_making()) return false;
      CHECK(made().askers == std::vector<ClientId>{7});
      return true;
    };
    CHECK(is_made());
    CHECK(!is_made());
    now += Followers::kPeriod / 2;
    CHECK(!is_made());
    ++pages.events;
    CHECK(is_made());
    ++pages.events;
    CHECK(!is_made());  // so soon
    now += Followers::kPeriod / 2;
    CHECK(is_made());
    now += Followers::kPeriod;
    CHECK(is_made());
    now += Followers::kPeriod / 2;
    REQUIRE(status.follow(Reader::Trusted, 8));
    status.make_events(now);
    CHECK(made().askers == std::vector<ClientId>{7, 8});
  }

  TEST_CASE_FIXTURE(Server, "strangers leave those who are trusted room to follow") {
    ClientId id = 1;
    while (status.follow(Reader::Stranger, id)) ++id;
    CHECK(id == Followers::kMost + 1);
    CHECK(status.follow(Reader::Trusted, id));
    status.unfollow(1);
    CHECK(status.follow(Reader::Stranger, ++id));
    status.show(nullptr);
    CHECK(!status.follow(Reader::Trusted, ++id));
  }
}
