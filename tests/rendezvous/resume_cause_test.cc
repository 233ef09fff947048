// SPDX-License-Identifier: BSD-3-Clause
//
// A coordinator that begins anew under a round which is being stopped: the others hear for what.
#include <doctest/doctest.h>

#include <csignal>
#include <string>

#include "rendezvous/decide/member.h"
#include "tests/rendezvous/one_member.h"
#include "tests/rendezvous/one_run.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

// Round 2 of a and b, under a daemon that was started again.
struct Anew : test::OneRun {
  static request::Resume resume_of(const std::string& host, Workers workers) {
    request::Resume resume{.join = {.host = host,
                                    .address = host,
                                    .settings = {.min_nodes = 1, .max_nodes = 2},
                                    .policy = {.max_restarts = 3},
                                    .store_port = 1000},
                           .workers = workers,
                           .failed = {}};
    resume.join.previous_rank = host[0] - 'a';
    resume.join.next_round = 3;
    resume.join.run_uuid = "uuid";
    resume.join.previous_nodes = 2;
    resume.join.is_back = resume.join.was_in_round = true;
    return resume;
  }
  // By the last event.
  const command::Stop* stop_of(const std::string& node) const {
    for (const auto& send : sent) {
      const auto* stop = std::get_if<command::Stop>(&send.command);
      if (send.node == node && stop != nullptr) return stop;
    }
    return nullptr;
  }
  std::string b_stops_for() const {
    const command::Stop* stop = stop_of("b.0");
    return stop == nullptr ? "nothing" : why_of(*stop);
  }
};

const request::Leaving kStopped{.why = "was stopped by SIGTERM", .signal = SIGTERM, .grace = 30s};

}  // namespace

TEST_CASE("Resume: of a node that was told to stop the others hear so, and by which signal") {
  Anew place;
  request::Resume stopping = Anew::resume_of("a", Workers::Stopping);
  stopping.leaving = kStopped;
  SUBCASE("if they came before it") {
    place.says("b.0", Anew::resume_of("b", Workers::Up));
    place.says("a.0", stopping);
  }
  SUBCASE("and after it") {
    place.says("a.0", stopping);
    place.says("a.0", kStopped);  // it says it again by itself
    place.says("b.0", Anew::resume_of("b", Workers::Up));
  }
  CHECK(place.b_stops_for() == "a was stopped by SIGTERM");
  CHECK(place.stop_of("b.0")->signal == SIGTERM);
}

TEST_CASE("Resume: the others hear why the node has left that came alone") {
  Anew place;
  request::Resume stopping = Anew::resume_of("a", Workers::Stopping);
  stopping.leaving = kStopped;
  SUBCASE("and said so while it stopped") {
    place.says("a.0", stopping);
    place.says("a.0", request::Left{});
    REQUIRE(place.state.runs.empty());
  }
  SUBCASE("and was killed before it came") {
    place.says("a.0", request::Left{.why = "was stopped by SIGTERM", .round = 2});
  }
  place.says("b.0", Anew::resume_of("b", Workers::Up));
  CHECK(place.b_stops_for() == "a was stopped by SIGTERM");
}

TEST_CASE("Resume: the others hear what the coordinator before has stopped the round for") {
  Anew place;
  request::Resume stopping = Anew::resume_of("a", Workers::Stopping);
  place.says("b.0", Anew::resume_of("b", Workers::Up));
  SUBCASE("as the node has heard it") {
    stopping.why = "c was lost (it was silent)";
    place.says("a.0", stopping);
    CHECK(place.b_stops_for() == "c was lost (it was silent)");
  }
  SUBCASE("unless that is not known") {
    place.says("a.0", stopping);
    CHECK(place.b_stops_for() == "a was stopping its workers when the rendezvous began anew");
  }
}

// The coordinator before has counted it, and b has heard its Stop.
TEST_CASE("Resume: the others hear of a failure that was counted before") {
  Anew place;
  request::Resume other = Anew::resume_of("b", Workers::Up);
  other.join.restart_count = 1;
  place.says("b.0", other);
  request::Resume stopping = Anew::resume_of("a", Workers::Stopping);
  stopping.failed = request::Failed{
      .round = 2, .failure = {.rank = 0, .status = {.exit_code = 3}, .restart_count = 0}};
  place.says("a.0", stopping);
  CHECK(place.b_stops_for().starts_with("rank 0 on a "));
  CHECK(place.run().restarts.count == 1);
}

TEST_CASE("Resume: a node says what it was told") {
  test::OneMember node{
      .config = {.run = "job", .name = "n", .endpoint = "e:1", .node = {.host = "h"}}};
  auto resumes = [&]() -> request::Resume {
    node.on(member::event::ConnectionLost{"reset"});
    node.on(
        member::event::Connected{.address = "10.0.0.7", .coordinator = "d2", .is_at_daemon = true});
    const auto* post = node.wanted<member::action::Post>();
    REQUIRE(post != nullptr);
    return std::get<request::Resume>(post->message.request);
  };
  node.on(member::event::RoundWanted{1000});
  node.on(
      member::event::Connected{.address = "10.0.0.7", .coordinator = "d1", .is_at_daemon = true});
  node.on(member::event::Heard{command::Round{.number = 2}});
  CHECK(resumes().why.empty());
  SUBCASE("of a stop") {
    node.on(member::event::Heard{command::Stop{.round = 2, .why = "c was lost"}});
    CHECK(resumes().why == "c was lost");
    node.on(member::event::RoundWanted{1000});
    CHECK(resumes().why.empty());
  }
  SUBCASE("of a failure elsewhere") {
    Failure failure{.rank = 1, .node = "c", .status = {.exit_code = 3}};
    node.on(member::event::Heard{
        command::Stop{.round = 2, .cause = RoundEndCause::WorkerFailed, .failure = failure}});
    CHECK(resumes().why.starts_with("rank 1 on c "));
  }
  SUBCASE("to stop itself") {
    node.on(member::event::Leaving{"was stopped by SIGTERM", SIGTERM});
    auto leaving = resumes().leaving;
    REQUIRE(leaving.has_value());
    CHECK(leaving->why == "was stopped by SIGTERM");
    CHECK(leaving->signal == SIGTERM);
  }
}
