// SPDX-License-Identifier: BSD-3-Clause
//
// A host that is not at the endpoint, and stood still for longer than its lease: fresh nodes may
// have begun the run anew at the endpoint meanwhile.
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "rendezvous/decide/host_change.h"
#include "tests/rendezvous/one_run.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

const RoundId kRound{.number = 4, .by = "a@0"};
const Endpoint kEndpoint{.host = "e", .port = 1};
const Endpoint kHere{.host = "b", .port = 7};

// The hosting node.
request::Join join_of(const std::string& node, int max_nodes) {
  return {.host = node,
          .address = node,
          .settings = {.min_nodes = 1, .max_nodes = max_nodes},
          .policy = {.last_call_timeout = 0s},
          .store_port = 1000,
          .stand_in_port = 2000,
          .is_host = true};
}

// One node, which hosts, and goes on from a round of two: the other one, the host before, was
// killed.
struct Host : test::OneRun {
  explicit Host(std::uint64_t order) {
    on(runs::event::Begun{.files = {}, .name = "b@1", .order = order});
  }
  request::Join join() const { return join_of("b", 3); }
  void goes_on() {
    request::Join from = join();
    comes_from(from, kRound, 2, 0s, "a@0");
    says("b.1", from);
    says("b.1", request::Heartbeat{.pulse = pulse()});
    says("a.0", request::Left{.why = "was lost",
                              .round = kRound.number,
                              .knows = kRound,
                              .nodes = 2,
                              .seen_of = "a@0"});
    REQUIRE(told<command::Round>() == 1);
    for (int i = 0; i < 20; ++i) passes(100ms);
  }
  void passes(Duration duration) {
    now.mono += duration;
    on(runs::event::Tick{});
    if (told<command::Stop>() == 0) says("b.1", request::Heartbeat{.pulse = pulse(), .round = 5});
  }
  std::int64_t pulse() const { return now.mono.time_since_epoch().count(); }
  request::Knock knock() const {
    auto knock = runs::knock(state, "job", kHere, kEndpoint, now.mono);
    REQUIRE(knock);
    return *knock;
  }
  bool renews_leases() const { return runs::heard_at(state, "job", now.mono) == now.mono; }
  // Having stood still, its own node asks whether the run goes on.
  void asks() {
    request::Join from = join();
    comes_from(from, {.number = 5, .by = "b@1"}, 1, 0s, "b@1");
    says("b.1", request::Resume{.join = from, .workers = Workers::Up});
  }
};

const Policy kPolicy;

}  // namespace

TEST_SUITE("A host that stood still for longer than its lease") {
  TEST_CASE("says nothing that renews a lease until the endpoint has been asked") {
    Host host(1);
    host.goes_on();
    REQUIRE(host.renews_leases());
    CHECK_FALSE(host.knock().asks);
    host.now.mono += kPolicy.lease();
    CHECK_FALSE(host.renews_leases());  // before any step
    host.on(runs::event::Tick{});
    CHECK_FALSE(host.renews_leases());
    CHECK(runs::is_alone(host.state, "job", host.now.mono));
    CHECK(host.knock().asks);
    CHECK(host.knock().run_uuid == host.run().run_uuid);
    host.asks();
    CHECK(host.told<command::Continue>() == 0);
    SUBCASE("where no other start is: at once") {
      host.on(runs::event::EndpointIsClear{"job"});
      CHECK(host.told<command::Continue>() == 1);
      CHECK(host.renews_leases());
      CHECK_FALSE(host.knock().asks);
    }
    SUBCASE("which has the same run, and has a host that waits: nothing is settled") {
      host.on(runs::event::Answered{"job", command::Moved{.to = kEndpoint}});
      CHECK_FALSE(host.renews_leases());
      CHECK(host.run().phase == coordinator::Phase::Running);
    }
    SUBCASE("which does not answer: after the time in which others begin anew") {
      const MonoTime end = host.now.mono + kPolicy.lease() + kPolicy.silence_limit() * 3 / 5;
      while (host.now.mono + 100ms < end) host.passes(100ms);
      CHECK_FALSE(host.renews_leases());
      host.passes(100ms);
      CHECK(host.renews_leases());
    }
  }

  TEST_CASE("ends its run if another start of it goes on at the endpoint, when no worker lives") {
    Host host(1);
    host.goes_on();
    host.now.mono += kPolicy.lease();
    const command::Moved other{.to = kEndpoint, .why = "x", .is_other_start = true};
    host.on(runs::event::Answered{"job", other});
    CHECK(host.sent.empty());
    CHECK_FALSE(host.renews_leases());
    // Its node has ended the workers, since nothing renewed their lease.
    request::Join again = host.join();
    test::OneRun::comes_from(again, {.number = 5, .by = "b@1"}, 1, 0s, "b@1");
    host.says("b.2", again);
    CHECK(host.told<command::Round>() == 0);
    REQUIRE(host.run().phase == coordinator::Phase::Gathering);
    host.on(runs::event::Answered{"job", other});
    REQUIRE(host.told<command::End>() == 1);
    CHECK(host.run().verdict.exit_code == command::kExitRendezvous);
    CHECK(host.run().verdict.why ==
          "the host of this run stood still for 5.0 s, and a run with this id was begun meanwhile "
          "and goes on at e:1: this one ends, so that the two do not train at once; start these "
          "nodes again, and they join that one");
  }

  TEST_CASE("goes on at once where nobody can have begun the run anew") {
    auto goes_on_after = [](Host host, Duration standstill) {
      host.goes_on();
      host.now.mono += standstill;
      return host.renews_leases();
    };
    CHECK(goes_on_after(Host(1), kPolicy.lease() - 100ms));
    CHECK(goes_on_after(Host(0), 1h));  // it is at the endpoint itself
    Host guarded(1);
    guarded.state.guarded_run = "job";  // a registry says who hosts
    CHECK(goes_on_after(std::move(guarded), 1h));
  }

  TEST_CASE("is answered by the host at the endpoint") {
    test::OneRun fresh;
    fresh.on(runs::event::Begun{.files = {}, .name = "x@0"});
    request::Knock knock{.from = kHere,
                         .to = kEndpoint,
                         .has_round = true,
                         .formed = 6,
                         .order = 1,
                         .run_uuid = "a.0",
                         .asks = true};
    SUBCASE("that knows nothing of the run") {
      fresh.says("b.knock", knock);
      CHECK(fresh.told<command::Continue>() == 1);
      CHECK(fresh.told<command::Moved>() == 0);
    }
    SUBCASE("whose nodes wait: they are sent on") {
      fresh.says("x.0", join_of("x", 2));
      REQUIRE(fresh.run().phase == coordinator::Phase::Gathering);
      fresh.says("b.knock", knock);
      CHECK(fresh.told<command::Continue>() == 1);
      CHECK(fresh.told<command::Moved>() == 1);
    }
    SUBCASE("where another start of the run goes on, which is not disturbed") {
      fresh.says("x.0", join_of("x", 1));
      REQUIRE(fresh.told<command::Round>() == 1);
      fresh.says("b.knock", knock);
      REQUIRE(fresh.sent.size() == 1);
      const auto* moved = std::get_if<command::Moved>(&fresh.sent.front().command);
      REQUIRE(moved != nullptr);
      CHECK(moved->is_other_start);
      CHECK(moved->to == kEndpoint);
      CHECK(fresh.run().phase == coordinator::Phase::Running);
    }
    SUBCASE("where another start is about to end: not before its workers have") {
      fresh.says("x.0", join_of("x", 1));
      fresh.on(runs::event::HostLeaves{.why = "x was stopped"});
      REQUIRE(fresh.run().phase == coordinator::Phase::Ended);
      fresh.says("b.knock", knock);
      CHECK(fresh.sent.empty());
    }
  }
}
