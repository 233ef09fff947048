// SPDX-License-Identifier: BSD-3-Clause
//
// Which places a node tries, in which order and with which pauses.
#include "rendezvous/decide/connector.h"

#include <doctest/doctest.h>

#include <string>
#include <variant>

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace ddprun::rendezvous::member;
using namespace std::chrono_literals;

namespace {

struct Node {
  Config config{.run = "job", .name = "n", .endpoint = "e:1", .node = {.host = "h"}};
  State state{};
  MonoTime now = MonoTime(1h);
  action::Connect last{};

  // Does that in one step, and says where it connects: "e:1", "a:7", "own 1"; " later" after a
  // pause.
  template <class Call>
  std::string does(Call call) {
    std::vector<Action> actions;
    call(Connector(state, actions, now, config));
    REQUIRE(actions.size() == 1);
    last = std::get<action::Connect>(actions.front());
    std::string text = last.place ? to_string(*last.place) : config.endpoint;
    if (last.stand_in > 0) text = "own " + std::to_string(last.stand_in);
    return text + (last.after > 0s ? " later" : "");
  }
  std::string connects() {
    return does([](Connector connector) { connector.connect(); });
  }
  std::string tries_next() {
    return does([](Connector connector) { connector.try_next_place(1min); });
  }
  std::string reconnects(bool is_mute = false) {
    return does([&](Connector connector) { connector.reconnect(is_mute); });
  }
  std::string reconnects_later() {
    return does([](Connector connector) { connector.reconnect_later(); });
  }
};

struct WithStandIns : Node {
  WithStandIns() {
    state.last = command::Round{.by = "c",
                                .stand_ins = {{.name = "m", .at = {"m", 7}},
                                              {.name = "n", .at = {"n", 7}},
                                              {.name = "o", .at = {"o", 7}}}};
    state.stand_ins = state.last->stand_ins;
  }
};

struct WithEndpoints : Node {
  WithEndpoints() { config.node.settings.endpoints = {{"a", 1}, {"b", 1}, {"c", 1}}; }
};

}  // namespace

TEST_CASE("Connector: at the only endpoint, each attempt after a longer pause") {
  Node node;
  CHECK(node.connects() == "e:1");
  CHECK(node.last.timeout == 0s);
  CHECK(node.state.link == Link::Connecting);
  Duration before{};
  for (std::uint64_t connection = 1; connection < 5; ++connection) {
    CHECK(node.tries_next() == "e:1 later");
    CHECK(node.last.connection == connection);  // each attempt has its own last will
    CHECK(node.last.after > before);
    before = node.last.after;
  }
  for (int i = 0; i < 20; ++i) node.tries_next();
  CHECK(node.last.after <= 2s);
}

TEST_CASE("Connector: the pause is not longer than what is left") {
  Node node;
  node.connects();
  node.state.attempts = 10;
  node.does([](Connector connector) { connector.try_next_place(7ms); });
  CHECK(node.last.after == 7ms);
}

TEST_CASE("Connector: where a coordinator has sent it, and else where the user says") {
  Node node;
  node.state.place = Endpoint{"x", 1};
  CHECK(node.connects() == "e:1");
  node.state.place = Endpoint{"x", 1};
  node.state.is_own_host = true;
  CHECK(node.connects() == "x:1");  // it hosts there
  node.state.sent_to = Endpoint{"y", 1};
  CHECK(node.connects() == "y:1");
}

TEST_CASE("Connector: the stand-ins in their order, its own when those before had their time") {
  WithStandIns node;
  CHECK(node.connects() == "e:1");
  CHECK(node.last.timeout > 0s);
  CHECK(node.tries_next() == "m:7");
  CHECK(node.tries_next() == "o:7");  // no turn of its own yet
  CHECK(node.tries_next() == "e:1 later");
  node.now += 1s;
  CHECK(node.tries_next() == "m:7");
  CHECK(node.tries_next() == "own 2");
  CHECK(node.tries_next() == "o:7");
}

TEST_CASE("Connector: a node that stood by looks for the run at the stand-ins, too") {
  WithStandIns node;
  node.state.last.reset();
  node.state.stand_ins.erase(node.state.stand_ins.begin() + 1);  // it is none of them
  CHECK(node.connects() == "e:1");
  CHECK(node.last.timeout > 0s);
  CHECK(node.tries_next() == "m:7");
  CHECK(node.tries_next() == "o:7");
  CHECK(node.tries_next() == "e:1 later");
}

TEST_CASE("Connector: a node that was cut off finds the host where it was") {
  WithStandIns node;
  node.state.host_at = Endpoint{"h", 7};
  CHECK(node.connects() == "e:1");
  CHECK(node.tries_next() == "h:7");
  CHECK(node.tries_next() == "m:7");
}

TEST_CASE("Connector: a lost connection is made again at once, unless it never lasts") {
  Node node;
  node.connects();
  node.state.attempts = 3;
  node.state.connected_at = node.now;
  node.now += 2s;
  CHECK(node.reconnects() == "e:1");
  CHECK(node.reconnects_later() == "e:1 later");
  node.state.connected_at = node.now;
  CHECK(node.reconnects() == "e:1 later");
}

TEST_CASE("Connector: with workers it is often enough for their lease") {
  Node node;
  node.config.node.policy.keep_alive_interval = 1s;
  node.config.node.policy.keep_alive_max_attempt = 2;
  node.state.attempts = 20;
  node.reconnects_later();
  CHECK(node.last.after >= 1s);
  node.state.workers = Workers::Up;
  node.reconnects_later();
  CHECK(node.last.after <= lease(node.state, node.config) / 20);
}

TEST_CASE("Connector: of several endpoints first the others, then all with pauses") {
  WithEndpoints node;
  node.connects();
  node.state.place = Endpoint{"b", 1};
  node.state.connected_at = node.now;
  node.now += 2s;
  CHECK(node.reconnects() == "b:1");  // a connection may die alone
  CHECK(node.reconnects_later() == "e:1");
  CHECK(node.reconnects_later() == "b:1");
  CHECK(node.reconnects_later() == "c:1");
  CHECK(node.reconnects_later() == "e:1 later");
  CHECK(node.reconnects_later() == "b:1");
}

TEST_CASE("Connector: an endpoint that does not answer is not tried again at once") {
  WithEndpoints node;
  node.connects();
  CHECK(node.reconnects(/*is_mute=*/true) == "b:1");
}

TEST_CASE("Connector: sent to another endpoint, with workers") {
  WithEndpoints node;
  node.connects();
  CHECK(node.does([](Connector connector) { connector.go_to_endpoint(2); }) == "c:1");
  CHECK(node.last.connection == 1);
  CHECK(node.reconnects_later() == "e:1");
}
