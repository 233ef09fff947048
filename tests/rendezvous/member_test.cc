// SPDX-License-Identifier: BSD-3-Clause
//
// What one node of a run says, tells its agent and does about its connection: scenarios in words.
#include "rendezvous/decide/member.h"

#include <doctest/doctest.h>

#include "store/base/variant.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using member::Link;

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
          [](const member::action::Post& post) { return "post " + words(post.message); },
          [](const member::action::Heartbeat& beat) { return "beat " + words(beat.message); },
          [](const member::action::NotifyRound& told) {
            return "round " + std::to_string(told.round.number);
          },
          [](const member::action::NotifyStop& told) { return "stop, " + told.stop.why; },
          [](const member::action::NotifyWaiting& told) { return "waiting, " + told.why; },
          [](const member::action::NotifyEnd& told) {
            return "end " + std::to_string(told.end.exit_code);
          },
          [](const member::action::NotifyFailure& told) { return "failed, " + told.why; },
          [](const member::action::NotifyUser& told) { return "say, " + told.text; },
      },
      action);
}

struct Play {
  member::Config config{.run = "job", .name = "n", .endpoint = "e:1", .node = {.host = "h"}};
  member::State state;
  Now now{.mono = MonoTime(1h)};
  std::vector<member::Action> actions;

  std::string on(const member::Event& event) {
    auto next = member::step(std::move(state), event, now, config);
    state = std::move(next.state);
    actions = std::move(next.actions);
    std::string text;
    for (const auto& action : actions) text += (text.empty() ? "" : "; ") + words(action);
    return text;
  }
  std::string hears(Command command) { return on(member::event::Heard{std::move(command)}); }
  std::string wants_round() { return on(member::event::RoundWanted{1000}); }
  std::string ticks() { return on(member::event::Tick{}); }
  std::string sees(const std::string& pulse) { return on(member::event::PulseSeen{pulse}); }
  const request::Join& join() const {
    return std::get<request::Join>(std::get<member::action::Post>(actions.back()).message.request);
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

TEST_CASE("Member: the worker's fate is posted with the round's number") {
  Running play;
  CHECK(play.on(member::event::WorkerFailed{}) == "post n.0 failed");
  CHECK(play.on(member::event::WorkersSucceeded{}) == "post n.0 succeeded");
}

TEST_CASE("Member: after the end it leaves, and hears and says nothing more") {
  Running play;
  CHECK(play.hears(command::End{.exit_code = 3}) == "post n.0 leave; end 3");
  CHECK(play.ticks() == "");
  CHECK(play.on(member::event::ConnectionLost{"reset"}) == "");
}

TEST_CASE("Member: refused, it is over") {
  Joined play;
  CHECK(play.hears(command::Refuse{"why"}) == "failed, this node was refused at e:1: why");
  CHECK(play.wants_round() == "");
}

TEST_CASE("Member: who loses the host stops its workers and comes back as somebody new") {
  Running play;
  CHECK(play.on(member::event::ConnectionLost{"reset"}) ==
        "disconnect; connect n.1; stop, e:1, where the nodes meet, was lost: reset; "
        "waiting, e:1, where the nodes meet, was lost: reset");
  CHECK(play.on(member::event::WorkerFailed{}) == "");
  CHECK(play.on(member::event::Connected{"10.0.0.7"}) == "");  // the workers are not down
  CHECK(play.wants_round() == "post n.1 join");
  CHECK(play.join().next_round == 5);
  CHECK(play.join().restart_count == 2);
  CHECK(play.join().previous_rank == 0);
}

TEST_CASE("Member: that the run waits concerns only a node that waits with it") {
  Running play;
  CHECK(play.hears(command::Waiting{"x was lost"}) == "");
  play.wants_round();
  CHECK(play.hears(command::Waiting{"x was lost"}) == "waiting, x was lost");
}

TEST_CASE("Member: given up by the others, it comes back as somebody new") {
  Running play;
  CHECK(play.hears(command::Dropped{"silent"}) ==
        "disconnect; connect n.1; stop, the others have given this node up: silent; "
        "waiting, the others have given this node up: silent");
}

TEST_CASE("Member: each attempt is a node of its own, since its will may have been heard") {
  Play play;
  play.wants_round();
  CHECK(play.on(member::event::ConnectFailed{"timed out"}) == "connect n.1 later");
  CHECK(play.on(member::event::ConnectFailed{"timed out"}) == "connect n.2 later");
  CHECK(play.on(member::event::Connected{"a"}) == "post n.2 join");
}

TEST_CASE("Member: an absent host is tried for read_timeout, and people are told") {
  Play play;
  play.wants_round();
  CHECK(play.on(member::event::ConnectFailed{"refused"}).find("say") == std::string::npos);
  play.now.mono += 3s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) ==
        "say, refused; trying for 57.0 s more; connect n.2 later");
  CHECK(play.on(member::event::ConnectFailed{"refused"}) == "connect n.3 later");
  play.now.mono += 57s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) == "failed, refused; tried for 60.0 s");
}

TEST_CASE("Member: an absent host is tried no longer than the nodes may take to come") {
  Play play;
  play.config.node.policy.join_timeout = 5s;
  play.wants_round();
  play.now.mono += 3s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) ==
        "say, refused; trying for 2.0 s more; connect n.1 later");
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
  play.on(member::event::ConnectionLost{"reset"});
  play.wants_round();
  play.now.mono += 60s;
  CHECK(play.on(member::event::ConnectFailed{"refused"}) == "failed, refused; tried for 60.0 s");
}

TEST_CASE("Member: what cannot be mended is not tried again") {
  Play play;
  play.wants_round();
  CHECK(play.on(member::event::ConnectFailed{"no such backend", true}) ==
        "failed, no such backend");
}

TEST_CASE("Member: a host whose pulse stands still is lost before it gives this node up") {
  Running play;
  for (int i = 1; i <= 5; ++i) {
    play.now.mono += 1s;
    CHECK(play.ticks() == "beat n.0 heartbeat");
    play.sees("same");
  }
  // The first of these beats was heard, at the earliest when it was sent: 4 s ago.
  CHECK(play.config.node.policy.silence_limit() == 5s);
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 500ms);
  play.now.mono += 500ms;
  CHECK(play.ticks().find("stop, e:1, where the nodes meet, has been silent for 4.5 s") !=
        std::string::npos);
}

TEST_CASE("Member: the lease counts from the question, not from a late answer") {
  Running play;
  play.now.mono += 1s;
  play.ticks();
  play.now.mono += 4s;
  play.sees("new");
  CHECK(play.ticks() == "beat n.0 heartbeat");
  play.now.mono += 2s;  // 6 s after the question, 2 s after the answer
  CHECK(play.ticks().find("has been silent for 6.0 s") != std::string::npos);
}

TEST_CASE("Member: one that was stopped itself takes itself for given up") {
  Running play;
  play.now.mono += 6s;
  CHECK(play.ticks().find("stop, this node was stopped for 6.0 s") != std::string::npos);
}

TEST_CASE("Member: it goes by the keep-alive of the run, which counts from its join") {
  Joined play;
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 1s);
  play.now.mono += 300ms;
  command::KeepAlive rules{
      .keep_alive_interval = 200ms, .keep_alive_max_attempt = 4, .text = "rules"};
  CHECK(play.hears(rules) == "say, rules");
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 200ms);
  CHECK(play.hears(command::Round{.number = 0}) == "round 0");
  play.now.mono += 200ms;
  CHECK(play.ticks() == "beat n.0 heartbeat");
  play.now.mono += 200ms;  // 700 ms after the join
  CHECK(play.ticks().find("has been silent for 0.7 s") != std::string::npos);
  play.on(member::event::Connected{"a"});
  CHECK(member::next_tick(play.state, play.config) == play.now.mono + 1s);  // maybe of another host
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
  play.on(member::event::ConnectionLost{"reset"});
  play.on(member::event::Connected{"10.0.0.7"});
  play.wants_round();
  CHECK(play.join().run_uuid == "first");
}

TEST_CASE("Member: leaving, it says so once") {
  Running play;
  CHECK(play.on(member::event::Leaving{"was stopped by SIGTERM"}) == "post n.0 leave");
  CHECK(play.on(member::event::Leaving{"again"}) == "");
}
