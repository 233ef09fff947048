// SPDX-License-Identifier: BSD-3-Clause
//
// A store with its coordinator, and what strangers push into the inbox.
#include "rendezvous/host.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/decide/store_keys.h"
#include "rendezvous/link.h"
#include "tests/support/event_loop.h"
#include "tests/support/own_connections.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

namespace asio = boost::asio;

// A host, and one connection to it for all the test's nodes.
struct Meeting {
  asio::io_context loop{1};
  std::unique_ptr<Host> host;
  std::unique_ptr<store::Client> client;
  std::string record;
  std::uint16_t port = 0;
  std::size_t ignored = 0;
  std::string failure;

  template <class T>
  T run(asio::awaitable<T> task) {
    std::optional<T> result;
    asio::co_spawn(loop, std::move(task), [&](std::exception_ptr error, T value) {
      if (error) std::rethrow_exception(error);
      result = std::move(value);
    });
    REQUIRE(test::run_until(
        loop, [&] { return result.has_value(); }, 60s));
    return std::move(*result);
  }

  explicit Meeting(store::ServerConfig config = {}) {
    config.listen = {.host = "127.0.0.1", .port = 0};
    auto server = store::Server::listen(loop.get_executor(), config);
    REQUIRE(server.has_value());
    port = (*server)->port();
    HostConfig hosting;
    hosting.name = "here";
    hosting.log = [this](const std::string&) { ++ignored; };
    hosting.on_failed = [this](const std::string& why) { failure += why; };
    host = std::make_unique<Host>(loop.get_executor(), std::move(*server), std::move(hosting));
    REQUIRE(run(host->open()).has_value());
    client = run(host->connect()).value();
    record = run(client->get(keys::kCoordinator, 5s)).value();
  }
  ~Meeting() {
    client->close();
    bool is_stopped = false;
    asio::co_spawn(loop, host->stop(), [&](std::exception_ptr) { is_stopped = true; });
    test::run_until(loop, [&] { return is_stopped; });
  }

  // A connection as that of another process.
  std::unique_ptr<store::Client> connect(std::string_view space) {
    store::ClientConfig config;
    config.namespace_name = space;
    return run(store::Client::connect(loop.get_executor(), {"127.0.0.1", port}, config)).value();
  }

  void push(const std::string& text) {
    REQUIRE(run(client->queue_push(keys::inbox(record), text)).has_value());
  }
  void say(const std::string& node, Request request) {
    push(encode(Message{"run", node, std::move(request)}));
  }
  void joins(const std::string& node) {
    request::Join join;
    join.host = node;
    join.address = "127.0.0.1";
    join.settings = {.min_nodes = 2, .max_nodes = 2, .master = std::nullopt};
    join.policy.max_restarts = 1;
    // These nodes send no heartbeats, and ten thousand joins take a while on a busy machine.
    join.policy.keep_alive_interval = 10min;
    join.store_port = 1;
    say(node, std::move(join));
  }
  Command next(const std::string& node) {
    auto text = run(client->queue_pop(keys::mailbox(node, 0), 30s));
    REQUIRE(text.has_value());
    return decode_command(*text).value();
  }
  template <class Wanted>
  Wanted told(const std::string& node) {
    Command command = next(node);
    REQUIRE(std::holds_alternative<Wanted>(command));
    return std::get<Wanted>(command);
  }
};

struct LimitedMeeting : Meeting {
  static store::ServerConfig limited() {
    store::ServerConfig config;
    config.keyspace = {.max_keys = 1000, .max_queue_items = 1, .max_bytes = 100'000};
    config.max_held_bytes = 100'000;
    return config;
  }
  LimitedMeeting() : Meeting(limited()) {}

  // Pushes items of these sizes, of each until there is no room for it.
  void fill(std::string_view space, std::initializer_list<std::size_t> sizes) {
    for (std::size_t size : sizes) {
      auto stranger = connect(space);
      bool is_connected = true;
      for (int i = 0; is_connected; ++i) {
        std::string queue = std::to_string(size) + "/" + std::to_string(i);
        is_connected = run(stranger->queue_push(queue, std::string(size, 'x'))).has_value() &&
                       run(stranger->queue_len(queue)).has_value();
      }
    }
  }

  // Until it needs a digit more, and so a byte.
  bool pulse_goes_on() {
    auto pulse = [this] { return run(client->get(keys::pulse(record), 5s)).value(); };
    std::size_t before = pulse().size();
    // On a busy machine it has three digits by now, and gets the fourth after 100 s.
    return test::run_until(
        loop, [&] { return pulse().size() > before; }, 150s);
  }
};

}  // namespace

TEST_SUITE("rendezvous/host") {
  // Such as one whose machine stood still, clock and all.
  TEST_CASE_FIXTURE(Meeting,
                    "a node that does not know that it was given up learns it from its next look") {
    for (const char* node : {"a", "b"}) {
      request::Join join;
      join.host = node;
      join.address = "127.0.0.1";
      join.settings = {.min_nodes = 2, .max_nodes = 2, .master = std::nullopt};
      join.policy.keep_alive_interval = 100ms;
      join.policy.keep_alive_max_attempt = 3;
      join.policy.lease_grace = 0s;
      join.store_port = 1;
      say(node, std::move(join));
    }
    told<command::Round>("b");
    auto is_given_up = [this] {
      std::vector<std::string> keys(1, keys::given_up("b"));
      return run(client->check(std::move(keys))).value();
    };
    auto end = std::chrono::steady_clock::now() + 60s;
    while (!is_given_up() && std::chrono::steady_clock::now() < end) {
    }
    std::optional<Command> heard;
    std::size_t pulses = 0;
    Link::Parts parts;
    parts.sender = connect(keys::kNamespace);
    parts.receiver = connect(keys::kNamespace);
    parts.record = record;
    parts.node = "b";
    Link::Listener listener;
    listener.heard = [&](Command command) { heard = std::move(command); };
    listener.pulse_seen = [&](const std::string&) { ++pulses; };
    listener.lost = [](const Error&) {};
    auto link = std::make_shared<Link>(loop.get_executor(), std::move(parts), std::move(listener));
    asio::co_spawn(loop, Link::send(link), asio::detached);
    link->post_heartbeat(encode(Message{"run", "b", request::Heartbeat{}}));
    REQUIRE(test::run_until(
        loop, [&] { return heard.has_value(); }, 60s));
    CHECK(std::holds_alternative<command::Dropped>(*heard));
    CHECK(pulses == 0);
    link->close();
  }

  TEST_CASE_FIXTURE(Meeting, "two nodes meet, fail together and end together") {
    joins("a");
    joins("b");
    CHECK(told<command::Round>("a").ranks.group_rank == 0);
    CHECK(told<command::Round>("b").ranks.group_rank == 1);
    say("b", request::Failed{.round = 0, .failure = {.rank = 1, .status = {.exit_code = 7}}});
    for (const char* node : {"a", "b"}) {
      CHECK(told<command::Stop>(node).failure->status.exit_code == 7);
      say(node, request::Ready{.round = 0, .store_port = 2});
    }
    for (const char* node : {"a", "b"}) {
      CHECK(told<command::Round>(node).restart_count == 1);
      say(node, request::Succeeded{.round = 1});
    }
    for (const char* node : {"a", "b"}) {
      CHECK(told<command::End>(node).exit_code == 0);
      say(node, request::Left{});
    }
    bool is_idle = false;
    asio::co_spawn(loop, host->coordinator()->idle(), [&](std::exception_ptr) { is_idle = true; });
    CHECK(test::run_until(loop, [&] { return is_idle; }));
  }

  TEST_CASE_FIXTURE(Meeting, "what is no message is ignored, and the run goes on") {
    joins("a");
    std::string good = encode(Message{"run", "c", request::Join{.host = "c", .address = "c"}});
    std::string negative = good;
    negative.insert(1, "\"node_rank\":-1,");
    std::string deep(60'000, '[');
    for (const std::string& junk :
         {std::string("not JSON"), std::string("{}"), std::string("[]"), std::string("\xff\xfe"),
          std::string(1 << 20, 'x'), "{\"v\":1," + std::string(1 << 20, ' ') + "}", deep, negative,
          std::string(
              "{\"v\":1,\"run\":\"run\",\"node\":\"x\",\"type\":\"ready\",\"round\":1e999}")}) {
      push(junk);
    }
    joins("b");
    CHECK(told<command::Round>("a").ranks.world_size == 2);
    CHECK(told<command::Round>("b").ranks.world_size == 2);
    CHECK(ignored == 5);  // what is wrong with several is said once
  }

  TEST_CASE_FIXTURE(Meeting, "who is no node of a run ends nothing of it") {
    joins("a");
    joins("b");
    told<command::Round>("a");
    told<command::Round>("b");
    auto stranger = connect(keys::kNamespace);
    auto says = [&](const std::string& run_id, const std::string& node, Request request) {
      std::string text = encode(Message{run_id, node, std::move(request)});
      REQUIRE(run(stranger->queue_push(keys::inbox(record), text)).has_value());
    };
    for (const auto& [run_id, node] :
         {std::pair("run", "stranger"), std::pair("other", "a"), std::pair("other", "stranger")}) {
      says(run_id, node, request::Failed{.round = 0, .failure = {.rank = 0}, .is_final = true});
      says(run_id, node, request::Succeeded{.round = 0});
      says(run_id, node, request::Leaving{"was stopped", 15, 0s});
      says(run_id, node, request::Left{"was lost"});
      says(run_id, node, request::Lost{});
    }
    // Only the host itself puts marks there.
    REQUIRE(run(stranger->queue_push(keys::inbox(record), "mark 1 run")).has_value());
    REQUIRE(run(stranger->queue_len(keys::inbox(record))).has_value());
    say("a", request::Succeeded{.round = 0});
    say("b", request::Succeeded{.round = 0});
    CHECK(told<command::End>("a").exit_code == 0);
    CHECK(told<command::End>("b").exit_code == 0);
    CHECK(ignored == 1);
  }

  TEST_CASE_FIXTURE(Meeting, "only the host commands nodes, and reads the files that they give") {
    joins("a");
    auto node = connect(keys::kNamespace);
    REQUIRE(run(node->set(keys::bundle("a"), "a secret")).has_value());
    std::string command = encode(Command(command::TakeBundle{.number = 1, .most_bytes = 1 << 20}));
    auto stranger = connect(keys::kNamespace);
    REQUIRE(run(stranger->queue_push(keys::mailbox("a", 0), command)));  // it has no reply
    CHECK_FALSE(run(stranger->queue_len(keys::mailbox("a", 0))));        // disconnected
    CHECK_FALSE(run(connect(keys::kNamespace)->get(keys::bundle("a"), 1s)));
    CHECK(run(client->get(keys::bundle("a"), 1s)).value() == "a secret");
    CHECK(run(node->set(keys::bundle("a"), "another")).has_value());
    joins("b");
    told<command::Round>("a");  // and no such command before it
  }

  TEST_CASE_FIXTURE(Meeting,
                    "a node is believed its addresses as far as its connection shows them") {
    auto join_of = [](const std::string& node, std::vector<std::string> addresses) {
      request::Join join;
      join.host = node;
      join.address = "127.0.0.1";
      join.settings = {.min_nodes = 2, .max_nodes = 2, .master = std::nullopt};
      join.policy.keep_alive_interval = 10min;
      join.store_port = 1;
      join.addresses = std::move(addresses);
      return join;
    };
    say("a", join_of("a", {"198.51.100.1", "198.51.100.2"}));  // the host's own
    auto other = connect(keys::kNamespace);
    std::string text = encode(Message{"run", "b", join_of("b", {"198.51.100.3"})});
    REQUIRE(run(other->queue_push(keys::inbox(record), text)).has_value());
    auto round = told<command::Round>("a");
    CHECK(round.peers == std::vector<std::string>{"198.51.100.1", "198.51.100.2"});
    CHECK(ignored == 1);
  }

  TEST_CASE_FIXTURE(Meeting,
                    "ten thousand joins from one client are bounded, and the run goes on") {
    joins("a");
    joins("b");
    told<command::Round>("a");
    told<command::Round>("b");
    constexpr int kFlood = 10'000;
    for (int i = 0; i < kFlood; ++i) {
      std::string node = "flood" + std::to_string(i);
      joins(node);
      say(node, request::Heartbeat{});  // one that says nothing more is soon dropped
    }
    std::string last = "flood" + std::to_string(kFlood - 1);
    CHECK(told<command::Refuse>(last).why.find("nodes already") != std::string::npos);
    told<command::Standby>("flood0");
    say("a", request::Succeeded{.round = 0});
    say("b", request::Succeeded{.round = 0});
    CHECK(told<command::End>("a").exit_code == 0);
    CHECK(told<command::End>("b").exit_code == 0);
  }

  TEST_CASE_FIXTURE(LimitedMeeting,
                    "a client that fills the store keeps no node out and the coordinator alive") {
    fill("", {90'000, 100});
    auto node = connect(keys::kNamespace);
    std::string left = encode(Message{"run", "a", rendezvous::request::Left{"was lost"}});
    CHECK(run(node->set_last_will(keys::inbox(record), left)).has_value());
    joins("a");
    joins("b");
    CHECK(told<command::Round>("a").ranks.world_size == 2);
    CHECK(told<command::Round>("b").ranks.world_size == 2);
    CHECK(pulse_goes_on());
    node->close();
    CHECK(told<command::Stop>("b").why.find("lost") != std::string::npos);
    CHECK(ignored == 0);
  }

  TEST_CASE_FIXTURE(LimitedMeeting, "one who fills the rendezvous's own space does not end it") {
    fill(keys::kNamespace, {8 << 20, 100'000, 1000, 1});
    joins("a");
    joins("b");
    CHECK(told<command::Round>("a").ranks.world_size == 2);
    CHECK(told<command::Round>("b").ranks.world_size == 2);
    CHECK(pulse_goes_on());
    CHECK(ignored == 0);
  }

  TEST_CASE_FIXTURE(Meeting, "a coordinator that cannot go on ends the service of its host") {
    auto node = connect(keys::kNamespace);
    test::cut_own_connections();
    CHECK(test::run_until(loop, [&] { return !failure.empty(); }));
    CHECK(failure.find("the coordinator cannot ") == 0);
    CHECK(run(node->num_keys()).error().code == Errc::Closed);
    store::ClientConfig once;
    once.tries_once = true;
    auto again = run(store::Client::connect(loop.get_executor(), {"127.0.0.1", port}, once));
    CHECK(again.error().code == Errc::Refused);
    CHECK(failure.find("coordinator", failure.find("coordinator") + 1) == std::string::npos);
  }

  TEST_CASE_FIXTURE(Meeting, "a coordinator in which something throws says so and closes") {
    ServiceConfig config;
    config.record = record = "other here 1";
    config.keep_file = [](const RunFile&) { throw std::runtime_error("no room"); };
    config.on_failed = [this](const std::string& why) { failure += why; };
    auto in = run(host->connect()).value();
    auto out = run(host->connect()).value();
    auto service = run(CoordinatorService::start(loop.get_executor(), std::move(config),
                                                 std::move(in), std::move(out), false))
                       .value();
    joins("a");
    joins("b");
    CHECK(test::run_until(loop, [&] { return !failure.empty(); }));
    CHECK(failure == "the coordinator has failed: no room");
    bool is_stopped = false;
    asio::co_spawn(loop, service->stop(), [&](std::exception_ptr) { is_stopped = true; });
    CHECK(test::run_until(loop, [&] { return is_stopped; }));
  }

  TEST_CASE_FIXTURE(Meeting, "a host that leaves ends the run and lets nobody in") {
    joins("a");
    joins("b");
    told<command::Round>("a");
    told<command::Round>("b");
    host->coordinator()->host_leaves("here was stopped", 15);
    CHECK(told<command::End>("b").why == "here was stopped");
    joins("c");
    CHECK(told<command::Standby>("c").is_outside);
  }
}
