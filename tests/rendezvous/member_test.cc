// SPDX-License-Identifier: BSD-3-Clause
//
// What one node of a run says, tells its agent and does about its connection: scenarios in words.
#include "rendezvous/decide/member.h"

#include <doctest/doctest.h>

#include <csignal>
#include <set>
#include <stdexcept>

#include "rendezvous/decide/member_messages.h"
#include "store/base/variant.h"
#include "tests/rendezvous/one_member.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

std::string words(const Message& message) {
  std::string text = encode(message);
  std::size_t begin = text.find("\"type\":\"") + 8;
  return message.node + " " + text.substr(begin, text.find('"', begin) - begin);
}

std::string words(const member::Action& action) {
  return std::visit(
      Overloaded{
          [](const member::action::Connect& connect) {
            return "connect " + connect.node + (connect.after > 0s ? " later" : "");
          },
          [](const member::action::Disconnect&) { return std::string("disconnect"); },
          [](const member::action::Knock& knock) {
            return "knock at " + std::to_string(knock.places.size());
          },
          [](const member::action::Post& post) { return "post " + words(post.message); },
          [](const member::action::Heartbeat& beat) { return "beat " + words(beat.message); },
          [](const member::action::NotifyRound& told) {
            return "round " + std::to_string(told.round.number);
          },
          [](const member::action::NotifyInspect& told) { return "inspect, " + told.inspect.in; },
          [](const member::action::NotifyTakeStacks& told) {
            return "stacks " + std::to_string(told.take.number);
          },
          [](const member::action::NotifyTakeBundle& told) {
            return "bundle " + std::to_string(told.take.number);
          },
          [](const member::action::NotifyStop& told) { return "stop, " + told.stop.why; },
          [](const member::action::RenewLease&) { return std::string(); },  // Play::lease
          [](const member::action::NotifyWaiting& told) { return "waiting, " + told.why; },
          [](const member::action::NotifyEnd& told) {
            return "end " + std::to_string(told.end.exit_code);
          },
          [](const member::action::NotifyFailure& told) { return "failed, " + told.why; },
          [](const member::action::NotifyUser& told) { return "say, " + told.text; },
      },
      action);
}

struct Play : test::OneMember {
  Play() { config = {.run = "job", .name = "n", .endpoint = "e:1", .node = {.host = "h"}}; }

  std::string on(const member::Event& event) {
    OneMember::on(event);
    std::string text;
    for (const auto& action : actions) {
      std::string said = words(action);
      text += (text.empty() || said.empty() ? "" : "; ") + said;
    }
    return text;
  }
  // How long the workers may live from now on, as far as the guardian knows.
  std::string lease() const {
    if (state.lease_end == MonoTime::max()) return "none";
    return std::to_string(
               std::chrono::duration_cast<std::chrono::milliseconds>(state.lease_end - now.mono)
                   .count()) +
           " ms";
  }
  // Beats and answers, one a second.
  void pass(Duration duration) {
    for (MonoTime end = now.mono + duration; now.mono < end;) {
      now.mono += 1s;
      ticks();
      sees(std::to_string(now.mono.time_since_epoch().count()));
    }
  }
  std::string loses_connection() { return on(member::event::ConnectionLost{"reset"}); }
  std::string connects(const std::string& coordinator = "", bool is_at_daemon = false) {
    return on(member::event::Connected{
        .address = "10.0.0.7", .coordinator = coordinator, .is_at_daemon = is_at_daemon});
  }
  const request::Resume& resume() const {
    return std::get<request::Resume>(
        std::get<member::action::Post>(actions.back()).message.request);
  }
  std::optional<MonoTime> kill_by() const {
    for (const auto& action : actions) {
      if (const auto* stop = std::get_if<member::action::NotifyStop>(&action)) return stop->kill_by;
    }
    return std::nullopt;
  }
  std::string hears(Command command) { return on(member::event::Heard{std::move(command)}); }
  std::string wants_round() { return on(member::event::RoundWanted{1000}); }
  std::string ticks() { return on(member::event::Tick{}); }
  std::string sees(const std::string& pulse) { return on(member::event::PulseSeen{pulse}); }
  const request::Join& join() const {
    for (const auto& action : actions) {
      const auto* post = std::get_if<member::action::Post>(&action);
      const auto* join = post ? std::get_if<request::Join>(&post->message.request) : nullptr;
      if (join != nullptr) return *join;
    }
    throw std::logic_error("no join");
  }
};

struct Joined : Play {
  Joined() {
    CHECK(wants_round() == "connect n.0");
    CHECK(on(member::event::Connected{"10.0.0.7"}) == "post n.0 join");
    CHECK(join().address == "10.0.0.7");
    CHECK(join().store_port == 1000);
    CHECK(join().next_round == 0);
  }
};

struct Running : Joined {
  Running() {
    CHECK(hears(command::Round{.number = 4, .run_uuid = "first", .restart_count = 2}) == "round 4");
  }
};

}  // namespace

TEST_CASE("Member: a worker that waited in vain, here or on another node") {
  Running play;
  CHECK(play.hears(command::Inspect{.round = 3, .in = "x"}) == "");  // of another round
  CHECK(play.hears(command::Inspect{.round = 4, .in = "all_reduce"}) == "inspect, all_reduce");
  CHECK(play.on(member::event::WorkersInspected{}) == "post n.0 found");
  Running own;
  CHECK(own.on(member::event::WorkerFailed{.failure = {}, .wait = TimedOutWait{}}) ==
        "post n.0 failed");
  CHECK(own.on(member::event::WorkersInspected{}) == "post n.0 found");
  // A second look: this node knows something of the others' wait, too.
  CHECK(own.hears(command::Inspect{.round = 3, .in = "x"}) == "");
  CHECK(own.hears(command::Inspect{.round = 4, .in = "x"}) == "inspect, x");
  CHECK(own.on(member::event::WorkersInspected{}) == "post n.0 found");
  own.loses_connection();
  own.connects();
  REQUIRE(own.resume().failed);
  CHECK_FALSE(own.resume().failed->wait);  // by now its workers may have ended
}

TEST_CASE("Member: stacks are taken of the workers of this round") {
  Running play;
  CHECK(play.hears(command::TakeStacks{.round = 4, .number = 7}) == "stacks 7");
  CHECK(play.hears(command::TakeStacks{.round = 3, .number = 8}) == "");
  play.hears(command::Stop{.round = 4});
  CHECK(play.hears(command::TakeStacks{.round = 4, .number = 9}) == "");
}

TEST_CASE("Member: its files are given whatever its workers do") {
  Running play;
  CHECK(play.hears(command::TakeBundle{.number = 7}) == "bundle 7");
  play.hears(command::Stop{.round = 4});
  CHECK(play.hears(command::TakeBundle{.number = 8}) == "bundle 8");
}

TEST_CASE("Member: it says at once that its workers run, and with each heartbeat") {
  Running play;
  CHECK(play.on(member::event::WorkersUp{3}) == "");  // of another round
  CHECK(play.on(member::event::WorkersUp{4}) == "post n.0 heartbeat");
  auto up = [](const auto& action) {
    return std::get<request::Heartbeat>(action->message.request).up;
  };
  CHECK(up(play.wanted<member::action::Post>()) == 4);
  play.now.mono += 1s;
  play.ticks();
  REQUIRE(play.wanted<member::action::Heartbeat>() != nullptr);
  CHECK(up(play.wanted<member::action::Heartbeat>()) == 4);
  play.hears(command::Stop{.round = 4});
  CHECK(play.on(member::event::WorkersUp{4}) == "");
}

TEST_CASE("Member: a round, a stop, the next round") {
  Running play;
  CHECK(play.hears(command::Stop{.round = 4, .why = "x"}) == "stop, x");
  CHECK(play.wants_round() == "post n.0 ready");
  CHECK(play.hears(command::Stop{.round = 4}) == "");  // it has stopped
  CHECK(play.hears(command::Round{.number = 5}) == "round 5");
}

TEST_CASE("Member: a stop of another round and a round unasked for are ignored") {
  Running play;
  CHECK(play.hears(command::Stop{.round = 3}) == "");
  CHECK(play.hears(command::Round{.number = 5}) == "");
}

TEST_CASE("Member: where no coordinator gives a sign of life a node gives up") {
  Play play;
  play.config.node.policy.join_timeout = 20s;
  play.wants_round();
  play.connects();
  std::string said;
  for (int second = 0; second < 60 && !play.state.is_over; ++second) {
    play.now.mono += 1s;
    play.sees("1");  // a pulse that stands still, or a store that takes all
    said = play.ticks();
    if (said.find("connect n.") != std::string::npos) play.connects();
  }
  CHECK(
      said.find("failed, no coordinator at e:1, where the nodes meet, has given a sign of life") !=
      std::string::npos);
}

TEST_CASE("Member: as long as a coordinator lives a node waits for a round") {
  Joined play;
  play.config.node.policy.join_timeout = 20s;
  play.pass(2min);
  CHECK_FALSE(play.state.is_over);
  CHECK(play.state.is_joined);
}

TEST_CASE("Member: a host that breaks each connection is asked after pauses, and not for ever") {
  Joined play;
  play.config.node.policy.join_timeout = 20s;
  CHECK(play.loses_connection().find("later") == std::string::npos);
  std::size_t attempts = 1;
  std::string said;
  while (!play.state.is_over && attempts < 10'000) {
    play.now.mono += 1ms;
    play.connects();
    said = play.loses_connection();
    const auto* connect = std::get_if<member::action::Connect>(&play.actions.back());
    if (connect != nullptr) play.now.mono += connect->after;
    ++attempts;
  }
  CHECK(attempts < 100);
  CHECK(said.find("failed, no coordinator at e:1") != std::string::npos);
}

TEST_CASE("Member: the worker's fate is posted with the round's number") {
  Running play;
  CHECK(play.on(member::event::WorkerFailed{}) == "post n.0 failed");
  CHECK(play.on(member::event::WorkersSucceeded{}) == "post n.0 succeeded");
}

TEST_CASE("Member: after the end it stops its workers, and leaves when they have gone") {
  Running play;
  CHECK(play.hears(command::End{.exit_code = 3}) == "end 3");
  CHECK(play.hears(command::End{.exit_code = 4}) == "");
  play.now.mono += 1s;
  CHECK(play.ticks() == "beat n.0 heartbeat");  // its lease holds while they end
  CHECK(play.on(member::event::Finished{}) == "post n.0 left");
  CHECK(play.lease() == "none");
  CHECK(play.ticks() == "");
  CHECK(play.loses_connection() == "");
}

TEST_CASE("Member: a node whose own rendezvous fails ends, its workers within their lease") {
  std::string said =
      "disconnect; failed, the rendezvous that this node hosts at e:1 has failed: it broke";
  SUBCASE("with workers") {
    Running play;
    play.on(member::event::Connected{.address = "a", .is_own_host = true});
    play.now.mono += 1s;
    play.ticks();
    CHECK(play.lease() == "none");
    play.now.mono += 500ms;
    CHECK(play.on(member::event::HostFailed{"it broke"}) == said);
    CHECK(play.lease() == "4000 ms");
    CHECK(std::get<member::action::NotifyFailure>(play.actions[1]).kill_by ==
          play.now.mono + 4000ms);
    CHECK(play.on(member::event::ConnectFailed{"an attempt that was under way"}) == "");
    CHECK(play.on(member::event::WorkerFailed{}) == "");
    CHECK(play.lease() == "4000 ms");
    CHECK(play.on(member::event::Finished{}) == "");
    CHECK(play.lease() == "none");
  }
  SUBCASE("without") {
    Joined play;
    CHECK(play.on(member::event::HostFailed{"it broke"}) == said);
    CHECK(play.lease() == "none");
    CHECK(play.wants_round() == "");
  }
}

TEST_CASE("Member: refused, it is over") {
  Joined play;
  CHECK(play.hears(command::Refuse{"why"}) == "failed, this node was refused at e:1: why");
  CHECK(play.wants_round() == "");
}

TEST_CASE("Member: a broken connection is made again, under the same name, and stops nobody") {
  Running play;
  CHECK(play.loses_connection() ==
        "say, lost the connection to e:1, where the nodes meet: reset; connecting again; "
        "disconnect; connect n.0");
  CHECK(play.state.connection == 1);
  CHECK(play.on(member::event::ConnectFailed{"timed out"}) == "connect n.0 later");
  CHECK(play.state.connection == 2);
  CHECK(play.connects() == "say, reached e:1 again; post n.0 resume");
  CHECK(play.resume().workers == Workers::Up);
  CHECK(play.resume().join.next_round == 5);
  CHECK(play.resume().join.restart_count == 2);
  CHECK(play.resume().join.is_back);
  CHECK(play.resume().join.was_in_round);
  CHECK(play.hears(command::Continue{}) == "");
}

TEST_CASE("Member: where a registry says who hosts, it is the host that is lost") {
  Play play;
  play.config.endpoint = "etcd at e:2379";
  play.config.has_registry = true;
  play.wants_round();
  const Endpoint at{.host = "10.0.0.2", .port = 4000};
  const member::event::Connected connected{
      .address = "10.0.0.7", .coordinator = "node2@1", .host_at = at};
  CHECK(play.on(connected) == "post n.0 join");
  play.hears(command::Round{.number = 4, .run_uuid = "first", .by = "node2@1"});
  CHECK(play.loses_connection() ==
        "say, lost the connection to 10.0.0.2:4000 (node2), which hosts the run: reset; connecting "
        "again; disconnect; connect n.0");
  SUBCASE("for a moment") {
    CHECK(play.on(connected).starts_with("say, reached 10.0.0.2:4000 (node2) again; "));
  }
  SUBCASE("and its machine says so") {
    CHECK(play.on(member::event::ConnectFailed{.why = "refused", .is_refused = true})
              .find("stop, 10.0.0.2:4000 (node2), which hosts the run, was lost: refused") !=
          std::string::npos);
  }
  SUBCASE("without a word") {
    std::string said;
    for (int i = 0; i < 6; ++i) {
      play.now.mono += 500ms;
      said += play.ticks();
    }
    CHECK(
        said.find("stop, 10.0.0.2:4000 (node2), which hosts the run, has been silent for 2.5 s") !=
        std::string::npos);
  }
}

TEST_CASE("Member: a connection that does not answer is made again while the lease lasts") {
  Running play;
  play.now.mono += 1s;
  CHECK(play.ticks() == "beat n.0 heartbeat");
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 1s);
  play.now.mono += 1s;
  CHECK(play.ticks().find("it has not answered for 1.0 s; connecting again") != std::string::npos);
  CHECK(play.connects() == "say, reached e:1 again; post n.0 resume");
  CHECK(play.hears(command::Continue{}) == "");
  CHECK(play.lease() == "4500 ms");
}

TEST_CASE("Member: a resume says what the workers do") {
  SUBCASE("they failed without contact") {
    Running play;
    play.now.mono += 2400ms;
    play.ticks();
    play.now.mono += 100ms;
    CHECK(play.on(member::event::WorkerFailed{.failure = {.status = {.exit_code = 9}}}) == "");
    play.loses_connection();
    play.connects();
    CHECK(play.resume().workers == Workers::Stopping);
    REQUIRE(play.resume().failed);
    CHECK(play.resume().failed->round == 4);
  }
  SUBCASE("they have succeeded") {
    Running play;
    play.on(member::event::WorkersSucceeded{});
    play.loses_connection();
    play.connects();
    CHECK(play.resume().workers == Workers::Succeeded);
  }
  SUBCASE("they are down, and the next store is bound") {
    Running play;
    play.hears(command::Stop{.round = 4});
    play.loses_connection();
    CHECK(play.wants_round() == "");
    play.connects();
    CHECK(play.resume().workers == Workers::Down);
    CHECK(play.resume().join.store_port == 1000);
    CHECK(!play.resume().join.was_in_round);
  }
  SUBCASE("they are being stopped, since the node leaves") {
    Running play;
    play.on(member::event::Leaving{"was stopped by SIGTERM", 15});
    play.loses_connection();
    CHECK(play.connects() == "say, reached e:1 again; post n.0 resume; post n.0 leaving");
  }
}

TEST_CASE("Member: cut off, it stops its workers and comes back as another node") {
  Running play;
  play.loses_connection();
  play.now.mono += 2s;
  CHECK(play.ticks() == "");
  play.now.mono += 500ms;
  CHECK(play.ticks() ==
        "disconnect; stop, e:1, where the nodes meet, has been silent for 2.5 s; connect n.1");
  CHECK(play.kill_by() == play.now.mono + 2s);  // a tenth of 5 s before the others go on
  CHECK(play.lease() == "2000 ms");
  CHECK(play.on(member::event::WorkerFailed{}) == "");
  CHECK(play.connects() == "");  // the workers are not down
  CHECK(play.wants_round() == "post n.1 join");
  CHECK(play.lease() == "none");
  CHECK(play.join().next_round == 5);
  CHECK(play.join().previous_rank == 0);
  CHECK(play.join().was_in_round);
}

TEST_CASE("Member: what the round was is claimed within the lease, and once") {
  Running play;
  play.loses_connection();
  for (Duration step : {Duration(2s), Duration(500ms)}) {
    play.now.mono += step;
    play.ticks();
  }
  SUBCASE("within the lease") {
    play.wants_round();
    play.connects();
    CHECK(play.join().was_in_round);
    play.loses_connection();
    play.connects();
    CHECK(!play.resume().join.was_in_round);  // there may have been rounds since it joined
  }
  SUBCASE("later") {
    play.now.mono += 2s;
    play.wants_round();
    play.connects();
    CHECK(!play.join().was_in_round);
  }
}

TEST_CASE(
    "Member: a refused connection means that an agent which hosted is gone, and a daemon not") {
  member::event::ConnectFailed refused{.why = "refused", .is_refused = true};
  Running play;
  play.loses_connection();
  CHECK(play.on(refused).find("stop, e:1, where the nodes meet, was lost: refused") !=
        std::string::npos);
  Play other;
  other.wants_round();
  other.connects("d1", true);
  other.hears(command::Round{.number = 4});
  other.loses_connection();
  CHECK(other.on(refused) == "connect n.0 later");
}

TEST_CASE("Member: whoever resets a connection may refuse the next one, and the host be there") {
  member::event::ConnectFailed refused{.why = "refused", .is_refused = true};
  Running play;
  play.on(member::event::ConnectionLost{.why = "reset", .is_reset = true});
  CHECK(play.on(refused) == "connect n.0 later");
  SUBCASE("for a while: the same workers go on") {
    play.now.mono += 1s;
    CHECK(play.on(refused) == "connect n.0 later");
    CHECK(play.connects().find("resume") != std::string::npos);
    // Now it is as it was before.
    play.loses_connection();
    CHECK(play.on(refused).find("stop, ") != std::string::npos);
  }
  SUBCASE("for good: as where the host is silent") {
    std::string said;
    for (int i = 0; i < 6; ++i) {
      play.now.mono += 500ms;
      said += play.ticks() + play.on(refused);
    }
    CHECK(said.find("stop, e:1, where the nodes meet, has been silent for 2.5 s") !=
          std::string::npos);
  }
}

TEST_CASE("Member: another agent that hosts knows nothing of the round") {
  Running play;
  play.loses_connection();
  SUBCASE("which is named") {
    play.state.coordinator = "1f node0 17";
    CHECK(play.connects("2e node3 4")
              .find("stop, node3 (pid 4) hosts e:1 now, and node0 (pid 17) that did is gone with "
                    "what it knew of this round") != std::string::npos);
  }
  SUBCASE("where the host may change") {
    const std::string id = "-01234567-89ab-4cde-8f01-23456789abcd";
    play.state.coordinator = "node0" + id + "@1f";
    CHECK(play.connects("node-3" + id + "@2e")
              .find("stop, node-3 hosts e:1 now, and node0 that did is gone") != std::string::npos);
  }
  SUBCASE("if it says who it is") {
    CHECK(play.connects("other").find(
              "stop, another node hosts e:1 now, and the one that did is gone") !=
          std::string::npos);
  }
}

TEST_CASE("Member: the next coordinator of a daemon takes the round over, within the lease") {
  Play play;
  play.wants_round();
  play.connects("d1", true);
  play.hears(command::Round{.number = 4});
  play.loses_connection();
  SUBCASE("within it") {
    play.now.mono += 2s;
    CHECK(play.connects("d2", true) == "say, reached e:1 again; post n.0 resume");
    CHECK(play.lease() == "2500 ms");  // nothing is renewed before the answer
    CHECK(play.hears(command::Continue{}) == "");
    CHECK(play.lease() == "4500 ms");
  }
  SUBCASE("later: another coordinator may have gone on without it") {
    play.now.mono += 5s;  // stood still
    CHECK(play.connects("d2", true).find("stop, this node stood still past the end of its lease") !=
          std::string::npos);
  }
  SUBCASE("it was away for as long") {
    play.now.mono += 5s;
    play.state.last_tick = play.now.mono;
    CHECK(play.connects("d2", true).find("stop, e:1 was away for longer than the lease") !=
          std::string::npos);
  }
}

TEST_CASE("Member: whose workers have succeeded, and who waits for a daemon, stays the same node") {
  Play play;
  play.wants_round();
  play.connects("d1", true);
  play.hears(command::Round{.number = 4});
  play.on(member::event::WorkersSucceeded{});
  play.loses_connection();
  std::string said;
  auto ticks_for = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      play.now.mono += 1s;
      said += play.on(member::event::Tick{});
    }
  };
  SUBCASE("it says so to the next coordinator, however late") {
    ticks_for(60);
    CHECK(said == "");
    CHECK(play.connects("d2", true) == "say, reached e:1 again; post n.0 resume");
  }
  SUBCASE("also where it has stood still meanwhile itself") {
    play.now.mono += 10s;
    ticks_for(60);
    CHECK(said == "say, this node stood still for 11.0 s; asking whether the run goes on with it");
    CHECK(play.connects("d2", true) == "say, reached e:1 again; post n.0 resume");
  }
  SUBCASE("but not for ever") {
    ticks_for(700);
    CHECK(
        said.find(", where the nodes meet, has been silent for 600.0 s, since the workers of this "
                  "node succeeded") != std::string::npos);
  }
}

TEST_CASE("Member: attempts to reconnect spread and slow down, less so while workers wait") {
  Joined waiting;
  Running running;
  auto longest_of = [](Play& play) {
    play.loses_connection();
    Duration longest{};
    std::set<Duration> pauses;
    for (int i = 0; i < 12; ++i) {
      play.on(member::event::ConnectFailed{"timed out"});
      Duration after = std::get<member::action::Connect>(play.actions.back()).after;
      CHECK(after >= 25ms);
      pauses.insert(after);
      longest = std::max(longest, after);
    }
    CHECK(pauses.size() > 8);
    return longest;
  };
  Duration longest = longest_of(waiting);
  CHECK(longest > 1s);
  CHECK(longest <= 2s);
  CHECK(longest_of(running) <=
        225ms);       // a host that is away for 1 s is found before they are stopped
  Running succeeded;  // and those of the others need not run again
  succeeded.on(member::event::WorkersSucceeded{});
  CHECK(longest_of(succeeded) <= 225ms);
}

TEST_CASE("Member: that the run waits concerns only a node that waits with it") {
  Running play;
  CHECK(play.hears(command::Waiting{"x was lost"}) == "");
  play.wants_round();
  CHECK(play.hears(command::Waiting{"x was lost"}) == "waiting, x was lost");
}

TEST_CASE(
    "Member: given up by the others, its workers die at once, and it comes back as another node") {
  Running play;
  CHECK(play.hears(command::Dropped{"silent"}) ==
        "disconnect; stop, the others have given this node up: silent; connect n.1");
  CHECK(play.kill_by() == play.now.mono);
  play.wants_round();
  play.connects();
  CHECK(!play.join().was_in_round);  // the others have gone on
}

TEST_CASE("Member: each attempt is a connection of its own, since its will may have been heard") {
  Play play;
  play.wants_round();
  CHECK(play.on(member::event::ConnectFailed{"timed out"}) == "connect n.0 later");
  CHECK(play.on(member::event::ConnectFailed{"timed out"}) == "connect n.0 later");
  CHECK(play.on(member::event::Connected{"a"}) == "post n.0 join");
  CHECK(std::get<member::action::Post>(play.actions.back()).message.connection == 2);
}

TEST_CASE("Member: an absent host is tried for read_timeout, and people are told") {
  Play play;
  play.wants_round();
  CHECK(play.on(member::event::ConnectFailed{"refused"}).find("say") == std::string::npos);
  play.now.mono += 3s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) ==
        "say, refused; trying for 57.0 s more; connect n.0 later");
  CHECK(play.on(member::event::ConnectFailed{"refused"}) == "connect n.0 later");
  play.now.mono += 57s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) == "failed, refused; tried for 60.0 s");
}

TEST_CASE("Member: a new node hears what to do if the run goes on without the endpoint's machine") {
  Play play;
  play.config.stand_in_port = 7;
  play.wants_round();
  const std::string hint = "; if the run goes on without that machine, its host says in its log";
  play.now.mono += 3s;
  CHECK(play.on(member::event::ConnectFailed{"timed out"}).find(hint) == std::string::npos);
  play.now.mono += 25s;
  CHECK(play.on(member::event::ConnectFailed{"timed out"})
            .find("say, timed out; trying for 32.0 s more" + hint) == 0);
  play.now.mono += 32s;
  CHECK(play.on(member::event::ConnectFailed{"timed out"})
            .find("failed, timed out; tried for 60.0 s" + hint) == 0);
}

TEST_CASE("Member: of several absent places each is named once in a while") {
  Play play;
  play.wants_round();
  play.now.mono += 3s;
  auto fails = [&play](const std::string& why) {
    return play.on(member::event::ConnectFailed{why}).find("say, " + why) != std::string::npos;
  };
  CHECK(fails("a: refused"));
  CHECK(fails("b: refused"));
  for (int i = 0; i < 10; ++i) {
    play.now.mono += 1s;
    CHECK_FALSE(fails("a: refused"));
    CHECK_FALSE(fails("b: refused"));
  }
  play.now.mono += 10s;
  CHECK(fails("a: refused"));
  CHECK(fails("b: refused"));
  CHECK_FALSE(fails("a: refused"));
}

TEST_CASE("Member: an absent host is tried no longer than the nodes may take to come") {
  Play play;
  play.config.node.policy.join_timeout = 5s;
  play.wants_round();
  play.now.mono += 3s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) ==
        "say, refused; trying for 2.0 s more; connect n.0 later");
  play.now.mono += 2s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) == "failed, refused; tried for 5.0 s");
}

TEST_CASE("Member: a spare that finds no host was not needed") {
  Play play;
  play.config.is_spare = true;
  play.wants_round();
  play.now.mono += 60s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) == "end 0");
  const auto& end = std::get<member::action::NotifyEnd>(play.actions.front()).end;
  CHECK(end.why == "this spare node was not needed: refused; tried for 60.0 s");
}

TEST_CASE("Member: a spare that had its round fails with a lost host") {
  Running play;
  play.config.is_spare = true;
  play.loses_connection();
  play.on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
  play.wants_round();
  play.now.mono += 10min;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) == "failed, refused; tried for 600.0 s");
}

TEST_CASE("Member: what cannot be mended is not tried again") {
  Play play;
  play.wants_round();
  CHECK(play.on(member::event::ConnectFailed{"no such backend", true}) ==
        "failed, no such backend");
}

TEST_CASE("Member: half a silence limit without a pulse, and the workers are stopped") {
  Running play;
  for (int i = 1; i <= 2; ++i) {
    play.now.mono += 1s;
    CHECK(play.ticks() == "beat n.0 heartbeat");
    play.sees("same");
  }
  // The first of these beats was heard, at the earliest when it was sent: 1 s ago.
  CHECK(play.config.node.policy.silence_limit() == 5s);
  CHECK(play.lease() == "3500 ms");
  play.now.mono += 1s;
  CHECK(play.ticks() == "beat n.0 heartbeat");
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 500ms);
  play.now.mono += 500ms;
  CHECK(play.ticks().find("stop, e:1, where the nodes meet, has been silent for 2.5 s") !=
        std::string::npos);
  CHECK(play.kill_by() == play.now.mono + 2s);
}

TEST_CASE("Member: after a short pause it reads before it judges the silence") {
  Running play;
  play.now.mono += 1s;
  CHECK(play.ticks() == "beat n.0 heartbeat");
  play.now.mono += 1600ms;  // the answer arrives meanwhile
  CHECK(play.ticks() == "");
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 125ms);
  SUBCASE("there is an answer") {
    CHECK(play.sees("new") == "beat n.0 heartbeat");
    play.now.mono += 125ms;
    CHECK(play.ticks() == "");
  }
  SUBCASE("a worker fails meanwhile") {
    CHECK(play.on(member::event::WorkerFailed{}) == "");
    CHECK(play.sees("new") == "post n.0 failed; beat n.0 heartbeat");
    CHECK(play.sees("newer") == "");
  }
  SUBCASE("there is none") {
    play.now.mono += 125ms;
    CHECK(play.ticks().find("has been silent for 2.7 s") != std::string::npos);
  }
  SUBCASE("and pauses again and again") {
    play.now.mono += 1s;
    CHECK(play.ticks().find("has been silent for 3.6 s") != std::string::npos);
  }
}

TEST_CASE("Member: a node without workers waits for its whole lease") {
  Joined play;
  play.now.mono += 1s;
  CHECK(play.ticks() == "beat n.0 heartbeat");
  play.now.mono += 1s;
  CHECK(play.ticks() ==
        "say, lost the connection to e:1, where the nodes meet: it has not answered for 1.0 s; "
        "connecting again; disconnect; connect n.0");
  play.connects();
  play.now.mono += 1s;
  CHECK(play.ticks() == "beat n.0 heartbeat");
  play.now.mono += 1s;
  CHECK(play.ticks() == "");  // not twice in a silence limit
  play.now.mono += 500ms;
  CHECK(play.ticks() ==
        "disconnect; say, e:1, where the nodes meet, has been silent for 4.5 s; "
        "connect n.1");
}

TEST_CASE("Member: a grace of the lease is the workers', not the wait's") {
  Running play;
  play.config.node.policy.lease_grace = 20s;
  play.loses_connection();
  play.now.mono += 2s;
  play.ticks();
  play.now.mono += 500ms;
  CHECK(play.ticks().find("stop, ") != std::string::npos);
  CHECK(play.kill_by() == play.now.mono + 22s);
}

TEST_CASE("Member: it beats often enough for a short silence limit") {
  Joined play;
  play.config.node.policy.keep_alive_interval = 2s;
  play.config.node.policy.keep_alive_max_attempt = 1;
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 500ms);
}

TEST_CASE("Member: the host's own agent needs no lease") {
  Play play;
  play.wants_round();
  play.on(member::event::Connected{.address = "a", .is_own_host = true});
  play.hears(command::Round{.number = 4});
  CHECK(play.lease() == "none");
  play.now.mono += 1h;
  CHECK(play.ticks() == "beat n.0 heartbeat");
}

TEST_CASE("Member: the lease counts from the question, not from a late answer") {
  Running play;
  play.now.mono += 1s;
  play.ticks();
  play.now.mono += 900ms;
  CHECK(play.ticks() == "");  // one question at a time
  play.now.mono += 50ms;
  CHECK(play.sees("new") == "");
  CHECK(play.lease() == "3550 ms");
  play.now.mono += 950ms;
  CHECK(play.ticks() == "beat n.0 heartbeat");
  play.now.mono += 600ms;  // 2.5 s after the question, 1.55 s after the answer
  CHECK(play.ticks().find("has been silent for 2.5 s") != std::string::npos);
}

TEST_CASE("Member: a round renews the lease from when the node said that it is ready") {
  Running play;
  play.hears(command::Stop{.round = 4, .cause = RoundEndCause::NodeJoined, .why = "a newcomer"});
  play.now.mono += 2s;
  CHECK(play.wants_round() == "post n.0 ready");
  play.now.mono += 300ms;
  play.hears(command::Round{.number = 5});
  CHECK(play.lease() == "4200 ms");
}

TEST_CASE("Member: where answers are slow, the next question follows at once") {
  Running play;
  play.config.node.policy.keep_alive_max_attempt = 10;
  CHECK(play.ticks() == "beat n.0 heartbeat");
  for (int i = 0; i < 10; ++i) {
    MonoTime asked = play.now.mono;
    play.now.mono += 1500ms;
    CHECK(play.ticks() == "");
    play.now.mono += 400ms;
    CHECK(play.sees(std::to_string(i)) == "beat n.0 heartbeat");
    CHECK(play.state.pulse_at == asked);
  }
}

TEST_CASE("Member: one that stood still asks before it stops its workers, and goes on") {
  Running play;
  play.now.mono += 1min;
  CHECK(play.ticks() ==
        "say, this node stood still for 60.0 s; asking whether the run goes on with it; post n.0 "
        "resume; beat n.0 heartbeat");
  CHECK(play.lease() == "-55500 ms");  // the guardian holds the workers
  play.sees("pulse");                  // that the host lives is no answer
  CHECK(play.lease() == "-55500 ms");
  play.now.mono += 100ms;
  CHECK(play.hears(command::Continue{}) == "say, the run goes on with this node");
  CHECK(play.lease() == "4400 ms");
}

TEST_CASE("Member: one that stood still asks whatever it hears first") {
  Running play;
  play.hears(command::Stop{.round = 4});
  play.wants_round();
  play.now.mono += 1min;
  CHECK(play.hears(command::Round{.number = 5}) ==
        "say, this node stood still for 60.0 s; asking whether the run goes on with it; post n.0 "
        "resume");
  CHECK(play.hears(command::Continue{}) == "say, the run goes on with this node");
  CHECK(play.hears(command::Round{.number = 5}) == "round 5");  // the coordinator says it again
}

TEST_CASE("Member: an answer to an earlier question renews nothing later") {
  Running play;
  play.loses_connection();
  play.connects();  // a Resume, whose answer comes late
  play.now.mono += 1min;
  play.ticks();
  CHECK(play.hears(command::Continue{}) == "");
  CHECK(play.lease() == "-55500 ms");
  CHECK(play.hears(command::Continue{}) == "say, the run goes on with this node");
  CHECK(play.lease() == "4500 ms");
}

TEST_CASE("Member: one that stands still again before it reads the answer asks again") {
  Running play;
  play.now.mono += 1min;
  play.ticks();
  play.now.mono += 1min;
  CHECK(play.hears(command::Continue{}).find("asking whether the run goes on") !=
        std::string::npos);
  CHECK(play.lease() == "-55500 ms");
  CHECK(play.hears(command::Continue{}) == "say, the run goes on with this node");
}

TEST_CASE("Member: one that stood still and gets no answer stops its workers") {
  Running play;
  play.now.mono += 1min;
  play.ticks();
  play.now.mono += 1s;
  play.ticks();
  play.now.mono += 1500ms;
  CHECK(play.ticks().find("stop, this node stood still, and e:1 does not answer") !=
        std::string::npos);
  CHECK(play.kill_by() == play.now.mono);
}

TEST_CASE("Member: a failure that was seen while asking counts if the run goes on with the node") {
  Running play;
  play.now.mono += 1min;
  play.ticks();
  CHECK(play.on(member::event::WorkerFailed{}) == "");
  CHECK(play.hears(command::Continue{}) == "say, the run goes on with this node; post n.0 failed");
}

TEST_CASE("Member: a worker that the end of the lease has killed has not failed") {
  const member::event::WorkerFailed killed{.failure = {.status = {.signal = SIGKILL}}};
  SUBCASE("the node comes back as another") {
    Running play;
    play.now.mono += 4500ms;
    std::string done = play.on(killed);
    CHECK(done.find("stop, this node stood still past the end of its lease; connect n.1") !=
          std::string::npos);
    CHECK(!play.state.failed);
  }
  SUBCASE("before that, or by itself, it has") {
    Running play;
    play.now.mono += 4400ms;
    play.on(killed);
    CHECK(play.state.failed);
    Running other;
    other.now.mono += 4500ms;
    other.on(member::event::WorkerFailed{.failure = {.status = {.exit_code = 9}}});
    CHECK(other.state.failed);
  }
}

TEST_CASE("Member: it goes by the keep-alive of the run, which counts from its join") {
  Joined play;
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 1s);
  play.now.mono += 300ms;
  command::KeepAlive rules{
      .keep_alive_interval = 200ms, .keep_alive_max_attempt = 5, .text = "rules"};
  CHECK(play.hears(rules) == "say, rules");
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 200ms);
  CHECK(play.hears(command::Round{.number = 0}) == "round 0");
  play.now.mono += 200ms;  // 500 ms after the join
  CHECK(play.ticks().find("has been silent for 0.5 s") != std::string::npos);
}

TEST_CASE("Member: what it goes by it brings to the next coordinator") {
  Joined play;
  play.hears(command::KeepAlive{.keep_alive_interval = 200ms,
                                .keep_alive_max_attempt = 5,
                                .lease_grace = 7s,
                                .text = "rules"});
  play.loses_connection();
  play.connects();
  CHECK(play.resume().join.policy.silence_limit() == 1s);
  CHECK(play.resume().join.policy.lease() == 8s);
}

TEST_CASE("Member: the run's restarts are what they were under the next host, too") {
  Joined play;
  CHECK(play.hears(command::Round{.number = 0, .max_restarts = 7}) == "round 0");
  play.loses_connection();
  play.connects();
  CHECK(play.resume().join.policy.max_restarts == 7);
}

TEST_CASE("Member: a patient run's keep-alive is not cut short by its own") {
  Joined play;
  command::KeepAlive rules{
      .keep_alive_interval = 10s, .keep_alive_max_attempt = 3, .text = "rules"};
  play.hears(rules);
  play.hears(command::Round{.number = 0});
  play.now.mono += 10s;
  CHECK(play.ticks() == "beat n.0 heartbeat");
}

TEST_CASE("Member: it comes back as one of the run that it was in") {
  Running play;
  play.hears(command::Dropped{"silent"});
  play.connects();
  play.wants_round();
  CHECK(play.join().run_uuid == "first");
}

TEST_CASE("Member: leaving, it says so at once, and again when its workers have gone") {
  Running play;
  play.config.stop_grace = 12s;
  CHECK(play.on(member::event::Leaving{"was stopped by SIGTERM", 15}) == "post n.0 leaving");
  const auto& post = std::get<member::action::Post>(play.actions.front());
  CHECK(std::get<request::Leaving>(post.message.request).grace == 12s);
  play.pass(10s);
  CHECK(play.hears(command::Stop{.round = 4}).find("stop") == 0);
  CHECK(play.on(member::event::Finished{}) == "post n.0 left");
  CHECK(play.wants_round() == "");
}

TEST_CASE("Member: leaving, it says that its workers have gone before it is done itself") {
  Running play;
  CHECK(play.on(member::event::WorkersGone{}) == "");  // nobody waits for that
  play.on(member::event::Leaving{"was stopped by SIGTERM", 15});
  CHECK(play.on(member::event::WorkersGone{}) == "post n.0 left");
  auto unsaid = [&] {
    return member::unsaid_left(play.state, play.config, play.now.mono, /*host_goes=*/false);
  };
  SUBCASE("once") {
    play.pass(1s);
    CHECK(play.actions.empty());
    CHECK_FALSE(unsaid());
    CHECK(play.on(member::event::Finished{}) == "");
  }
  SUBCASE("on a connection that was lost then, and does not come back for that") {
    play.on(member::event::ConnectionLost{"reset"});
    CHECK_FALSE(unsaid());
    play.state.is_at_daemon = true;  // which may be back in a moment
    auto word = unsaid();
    REQUIRE(word);
    const auto& left = std::get<request::Left>(word->message.request);
    CHECK(left.why == "was stopped by SIGTERM");
    CHECK(left.round == play.state.last->number);
    CHECK(word->places == std::vector<std::optional<Endpoint>>{std::nullopt});
    CHECK_FALSE(play.state.has_left);
    CHECK(play.state.link == member::Link::Down);
    CHECK(play.on(member::event::Finished{}) == "");
  }
}

TEST_CASE("Member: the lease of a node that leaves ends with the grace that it announced") {
  Running play;
  play.config.node.policy.lease_grace = 20s;
  play.config.stop_grace = 1s;
  play.pass(3s);
  CHECK(play.lease() == "24500 ms");
  play.on(member::event::Leaving{"was stopped by SIGTERM", 15});
  CHECK(play.lease() == "5000 ms");
  play.pass(2s);
  play.on(member::event::Leaving{"was stopped by SIGTERM", 15});  // again
  CHECK(play.lease() == "3000 ms");
}

TEST_CASE("Member: a node that leaves joins no further round") {
  Joined play;
  play.on(member::event::Leaving{"was stopped by SIGTERM", 15});
  CHECK(play.hears(command::Dropped{"silent"}) ==
        "disconnect; say, the others have given this node up: silent");
}

TEST_CASE("Member: what its guardian says for it names the round whose workers ran") {
  Running play;
  auto left = [&] {
    Message message = member::last_message(play.state, play.config, "was killed");
    CHECK(message.node == "n." + std::to_string(play.state.incarnation));
    return std::get<request::Left>(message.request).round;
  };
  CHECK(left() == 4);
  play.hears(command::Stop{.round = 4});
  CHECK(left() == 4);
  play.wants_round();
  CHECK(!left());
}
