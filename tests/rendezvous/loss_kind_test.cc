// SPDX-License-Identifier: BSD-3-Clause
//
// A round that ends because of nodes: each node hears what kind of loss that was, or knows it where
// it has stopped its workers by itself.
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

// Round 0 of a, b and c.
struct Three : test::OneRun {
  Three() {
    for (const std::string host : {"a", "b", "c"}) says(host + ".0", join_of(host));
  }
  static request::Join join_of(const std::string& host) {
    return {.host = host,
            .address = host,
            .settings = {.min_nodes = 2, .max_nodes = 3},
            .store_port = 1000};
  }
  // What b has heard by the last event.
  std::string loss() const {
    for (const auto& send : sent) {
      const auto* stop = std::get_if<command::Stop>(&send.command);
      if (send.node == "b.0" && stop != nullptr) return std::string(word_of(stop->loss));
    }
    return "no stop";
  }
};

// A node in round 4.
struct Running : test::OneMember {
  Running() {
    config = {.run = "job", .name = "n", .endpoint = "e:1", .node = {.host = "h"}};
    on(member::event::RoundWanted{1000});
    on(member::event::Connected{.address = "10.0.0.7"});
    on(member::event::Heard{command::Round{.number = 4}});
  }
  std::string loss() const {
    const auto* stop = wanted<member::action::NotifyStop>();
    return stop == nullptr ? "no stop" : std::string(word_of(stop->stop.loss));
  }
};

}  // namespace

TEST_CASE_FIXTURE(Three, "Loss: a node that was told to stop has left") {
  says("a.0", request::Leaving{.why = "was stopped by SIGTERM", .signal = SIGTERM, .grace = 30s});
  CHECK(loss() == "left");
}

TEST_CASE_FIXTURE(Three, "Loss: a node whose workers have ended without a reason has left") {
  says("a.0", request::Left{});
  CHECK(loss() == "left");
}

TEST_CASE_FIXTURE(Three, "Loss: a node whose agent was killed is lost, as one that is silent") {
  SUBCASE("by its guardian's word") {
    says("a.0", request::Left{.why = "was lost (its agent, pid 7, was killed)"});
    CHECK(loss() == "lost");
  }
  SUBCASE("by its silence") {
    std::string said = "no stop";
    auto note = [&] {
      if (said == "no stop") said = loss();
    };
    for (int i = 0; i < 20; ++i) {
      now.mono += 500ms;
      for (const char* node : {"b.0", "c.0"}) {
        says(node, request::Heartbeat{});
        note();
      }
      on(runs::event::Tick{});
      note();
    }
    CHECK(said == "lost");
  }
}

TEST_CASE_FIXTURE(Three, "Loss: a node that comes back as another one was cut off") {
  says("a.1", join_of("a"));
  CHECK(loss() == "cut_off");
}

TEST_CASE_FIXTURE(Three, "Loss: a coordinator that begins anew hears it of those who stop") {
  OneRun anew;
  auto resume_of = [](const std::string& host, Workers workers) {
    request::Resume resume{.join = join_of(host), .workers = workers};
    test::OneRun::comes_from(resume.join, {.number = 2}, 2, {}, "");
    return resume;
  };
  anew.says("b.0", resume_of("b", Workers::Up));
  request::Resume stopping = resume_of("a", Workers::Stopping);
  stopping.why = "c was stopped by SIGTERM";
  stopping.loss = LossKind::Left;
  anew.says("a.0", stopping);
  sent = anew.sent;
  CHECK(loss() == "left");
}

TEST_CASE_FIXTURE(Running, "Loss: where its host is lost a node has lost the rendezvous") {
  on(member::event::ConnectionLost{"reset"});
  on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
  CHECK(loss() == "rendezvous");
}

TEST_CASE_FIXTURE(Running, "Loss: a silent host is a lost rendezvous, too") {
  for (int i = 0; i < 20 && loss() == "no stop"; ++i) {
    now.mono += 500ms;
    on(member::event::Tick{});
  }
  CHECK(loss() == "rendezvous");
}

TEST_CASE_FIXTURE(Running, "Loss: a node that was given up is cut off") {
  on(member::event::Heard{command::Dropped{"silent for 5 s"}});
  CHECK(loss() == "cut_off");
}

TEST_CASE_FIXTURE(Running, "Loss: what a node was told, it says to the next coordinator") {
  on(member::event::Heard{command::Stop{.round = 4, .loss = LossKind::Left, .why = "c left"}});
  CHECK(loss() == "left");
  on(member::event::ConnectionLost{"reset"});
  on(member::event::Connected{.address = "10.0.0.7"});
  const auto* post = wanted<member::action::Post>();
  REQUIRE(post != nullptr);
  CHECK(std::get<request::Resume>(post->message.request).loss == LossKind::Left);
}
