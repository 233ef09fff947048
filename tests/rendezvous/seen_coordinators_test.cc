// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/seen_coordinators.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::rendezvous::member;
using namespace std::chrono_literals;

namespace {

constexpr bool kReports = true;
constexpr bool kDoesNotReport = false;

Contact contact(const std::string& of, Duration at) {
  return {.at = MonoTime(at), .of = of};
}

std::string said_to(const SeenCoordinators& seen, const std::string& coordinator) {
  auto contact = seen.for_coordinator(coordinator);
  return contact ? contact->of : "nothing";
}

}  // namespace

TEST_CASE("SeenCoordinators: before the first contact there is nothing to say") {
  SeenCoordinators seen;
  CHECK_FALSE(seen.last());
  CHECK_FALSE(seen.is_last_another("a"));
  CHECK(said_to(seen, "a") == "nothing");
  CHECK(seen.counted_by() == "");
  seen.take_back_join();
  CHECK_FALSE(seen.last());
}

TEST_CASE("SeenCoordinators: the last contact counts, whichever coordinator it was with") {
  SeenCoordinators seen;
  seen.note(contact("a", 1s), kDoesNotReport);
  seen.note(contact("b", 2s), kDoesNotReport);
  CHECK(seen.last()->at == MonoTime(2s));
  CHECK(seen.is_last_another("a"));
  CHECK_FALSE(seen.is_last_another("b"));
  CHECK(said_to(seen, "b") == "b");
  CHECK(said_to(seen, "c") == "b");
  CHECK(seen.counted_by() == "b");
}

TEST_CASE("SeenCoordinators: with several endpoints a coordinator hears of the one before") {
  SeenCoordinators seen;
  seen.note(contact("a", 1s), kReports);
  seen.note(contact("b", 2s), kReports);
  CHECK(said_to(seen, "b") == "a");
  CHECK(said_to(seen, "c") == "b");  // which is to hear of the last one
  CHECK(seen.counted_by() == "");    // a and b may not know of each other
  SUBCASE("also if it is seen again before it answers") {
    seen.note(contact("b", 3s), kReports);
    CHECK(said_to(seen, "b") == "a");
    CHECK(seen.for_coordinator("b")->at == MonoTime(1s));
  }
  SUBCASE("until it has answered") {
    seen.has_answered();
    CHECK(said_to(seen, "b") == "b");
    CHECK(seen.counted_by() == "b");
  }
  SUBCASE("or has a round") {
    seen.has_round();
    CHECK(said_to(seen, "b") == "b");
    CHECK(seen.counted_by() == "b");
  }
}

TEST_CASE("SeenCoordinators: a coordinator that has gone without a round was never joined") {
  SeenCoordinators seen;
  seen.note(contact("a", 1s), kDoesNotReport);
  seen.note_join(contact("b", 2s), kDoesNotReport);
  seen.note(contact("b", 3s), kDoesNotReport);
  SUBCASE("what was before holds again, once") {
    seen.take_back_join();
    CHECK(seen.last()->of == "a");
    CHECK(seen.last()->at == MonoTime(1s));
    seen.note(contact("c", 4s), kDoesNotReport);
    seen.take_back_join();
    CHECK(seen.last()->of == "c");
  }
  SUBCASE("unless it has had a round") {
    seen.has_round();
    seen.take_back_join();
    CHECK(seen.last()->of == "b");
  }
}

TEST_CASE("SeenCoordinators: nor was it where that was the first one of all") {
  SeenCoordinators seen;
  seen.note_join(contact("b", 2s), kDoesNotReport);
  seen.take_back_join();
  CHECK_FALSE(seen.last().has_value());
}
