// SPDX-License-Identifier: BSD-3-Clause
#include "store/client.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/base/check.h"
#include "store/base/fd.h"
#include "store/client_connect.h"
#include "store/clock.h"
#include "store/resolver.h"
#include "store/server.h"
#include "store/socket.h"
#include "store/task_group.h"

using namespace ddprun::store;
using namespace std::chrono_literals;
using ddprun::Endpoint;
using ddprun::Errc;
using ddprun::Fd;
using ddprun::Result;
namespace asio = boost::asio;

namespace {

constexpr auto kLimit = 20s;  // of every wait

template <class T>
std::string to_string(const Result<T>& result) {
  if (!result) return to_string(result.error());
  if constexpr (std::is_same_v<T, std::string>) return *result;
  if constexpr (std::is_same_v<T, bool>) return *result ? "true" : "false";
  if constexpr (std::is_same_v<T, std::int64_t>) return std::to_string(*result);
  if constexpr (std::is_same_v<T, std::optional<std::string>>) return result->value_or("none");
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    std::vector<std::string> words = *result;
    std::sort(words.begin(), words.end());
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
  }
  return "done";
}

template <class T>
asio::awaitable<void> note(Async<T> call, std::string& outcome) {
  outcome = to_string(co_await std::move(call));
}

template <class T>
asio::awaitable<void> keep(Async<T> call, std::optional<Result<T>>& outcome) {
  outcome.emplace(co_await std::move(call));
}

Fd connected_to(std::uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

// How many sockets of this machine have asked for a connection to `port` and have no answer yet.
int waiting_for_syn_ack(std::uint16_t port) {
  constexpr int kSynSent = 2;  // /proc/net/tcp's state
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  int count = 0;
  while (std::getline(table, line)) {
    unsigned remote_port = 0;
    unsigned state = 0;
    bool is_read = std::sscanf(line.c_str(), "%*u: %*x:%*x %*x:%x %x", &remote_port, &state) == 2;
    count += static_cast<int>(is_read && remote_port == port && state == kSynSent);
  }
  return count;
}

// A server and its clients on one thread, as in a program.
struct Loop {
  asio::io_context context{1};
  TaskGroup tasks{context.get_executor(), [](std::exception_ptr) { FAIL("a task threw"); }};
  std::unique_ptr<Server> server;
  std::vector<std::unique_ptr<Client>> clients;

  ~Loop() {
    for (auto& client : clients) client->close();
    tasks.cancel();
    run_until([this] { return tasks.empty(); });
    if (server) server->close();
  }

  void listen(std::uint16_t port = 0) {
    server = Server::listen(context.get_executor(), {.listen = {.host = "127.0.0.1", .port = port}})
                 .value();
  }

  template <class Claim>
  void run_until(Claim claim) {
    context.restart();
    auto end = std::chrono::steady_clock::now() + kLimit;
    bool is_true = claim();
    while (!is_true && std::chrono::steady_clock::now() < end) {
      context.run_one_for(1ms);
      is_true = claim();
    }
    ddprun::check(is_true, "a test waited in vain");
  }

  // The outcome of a call, in words.
  template <class T>
  std::string outcome_of(Async<T> call) {
    std::optional<Result<T>> outcome;
    tasks.spawn(keep(std::move(call), outcome));
    run_until([&] { return outcome.has_value(); });
    return to_string(*outcome);
  }

  Endpoint endpoint() const { return {.host = "127.0.0.1", .port = server->port()}; }

  Client& connect(ClientConfig config = {}) { return connect(endpoint(), config); }

  Client& connect(Endpoint to, ClientConfig config = {}) {
    std::optional<Result<std::unique_ptr<Client>>> client;
    tasks.spawn(keep(Client::connect(context.get_executor(), std::move(to), config), client));
    run_until([&] { return client.has_value(); });
    clients.push_back(std::move(*client).value());
    return *clients.back();
  }
};

struct Connected : Loop {
  Client* client = nullptr;
  Client* other = nullptr;

  Connected() {
    listen();
    client = &connect();
    other = &connect();
  }

  std::string where() const { return " on " + to_string(endpoint()); }
};

// Something that listens and is no store.
struct Stranger {
  Fd listener = listen_on({.host = "127.0.0.1", .port = 0}).value();
  Endpoint endpoint{.host = "127.0.0.1", .port = local_port(listener.get()).value()};
  Fd peer{};
};

// A port on which nobody listens: it was free a moment ago.
std::uint16_t unused_port() {
  auto listener = listen_on({.host = "127.0.0.1", .port = 0});
  return local_port(listener.value().get()).value();
}

}  // namespace

TEST_SUITE("store/client") {
  TEST_CASE_FIXTURE(Connected, "what one client sets another gets") {
    CHECK(outcome_of(client->set("k", "v")) == "done");
    CHECK(outcome_of(other->get("k", 5s)) == "v");
    CHECK(outcome_of(client->append("k", "w")) == "done");
    CHECK(outcome_of(client->get("k", 0s)) == "vw");
    CHECK(outcome_of(client->compare_set("k", "vw", "x")) == "x");
    CHECK(outcome_of(client->compare_set("missing", "a", "b")) == "a");
    CHECK(outcome_of(client->add("n", 4)) == "4");
    CHECK(outcome_of(client->add("n", -5)) == "-1");
    CHECK(outcome_of(client->check({"k", "n"})) == "true");
    CHECK(outcome_of(client->check({"k", "missing"})) == "false");
    CHECK(outcome_of(client->num_keys()) == "2");
    CHECK(outcome_of(client->list_keys()) == "k n");
    CHECK(outcome_of(client->delete_key("k")) == "true");
    CHECK(outcome_of(client->delete_key("k")) == "false");
  }

  TEST_CASE_FIXTURE(Connected, "a value and whether a key is there, in one exchange") {
    auto look = [this](const char* key) {
      std::optional<Result<Client::Flagged>> seen;
      tasks.spawn(keep(client->get_and_check(key, "flag"), seen));
      run_until([&] { return seen.has_value(); });
      return *seen;
    };
    CHECK(outcome_of(client->set("k", "v")) == "done");
    CHECK(look("k").value().value == "v");
    CHECK_FALSE(look("k").value().is_flagged);
    CHECK(outcome_of(client->set("flag", "")) == "done");
    CHECK(look("k").value().is_flagged);
    CHECK(outcome_of(client->get("k", 5s)) == "v");  // still in step
    CHECK(look("missing").value().value.empty());
  }

  TEST_CASE_FIXTURE(Connected, "many keys at once, and large values") {
    std::string large(3 << 20, 'x');
    CHECK(outcome_of(client->multi_set({{"a", "1"}, {"b", large}})) == "done");
    bool is_equal = outcome_of(other->multi_get({"b", "a"}, 5s)) == "1 " + large;
    CHECK(is_equal);
    CHECK(outcome_of(client->multi_get({}, 5s)) == "");
  }

  TEST_CASE_FIXTURE(Connected, "an answer that is larger than its caller allows is refused") {
    CHECK(outcome_of(client->set("k", std::string(100, 'x'))) == "done");
    CHECK(outcome_of(client->queue_push("q", std::string(100, 'x'))) == "done");
    CHECK(outcome_of(client->get("k", 5s, 100)) == std::string(100, 'x'));
    CHECK(outcome_of(client->get("k", 5s, 99)) ==
          "get 'k'" + where() + ": it announced 100 bytes, and 99 are allowed");
    CHECK(outcome_of(client->get("k", 5s)) == "get 'k'" + where() + ": the connection is closed");
    CHECK(outcome_of(other->queue_pop("q", 5s, 99)) ==
          "pop from 'q'" + where() + ": it announced 100 bytes, and 99 are allowed");
  }

  TEST_CASE_FIXTURE(Connected, "queues") {
    CHECK(outcome_of(client->queue_try_pop("q")) == "none");
    CHECK(outcome_of(client->queue_push("q", "a")) == "done");
    CHECK(outcome_of(client->queue_push("q", "b")) == "done");
    CHECK(outcome_of(client->queue_len("q")) == "2");
    CHECK(outcome_of(other->queue_pop("q", 5s)) == "a");
    CHECK(outcome_of(other->queue_try_pop("q")) == "b");
  }

  TEST_CASE_FIXTURE(Connected, "some items of a queue are popped at once, in their order") {
    auto popped = [&](std::size_t most) {
      return outcome_of(client->queue_pop_some("q", 5s, most));
    };
    for (int i = 0; i < 8; ++i) {
      CHECK(outcome_of(other->queue_push("q", std::to_string(i))) == "done");
    }
    CHECK(outcome_of(other->queue_len("q")) == "8");
    CHECK(popped(1) == "0");
    CHECK(popped(3) == "1 2 3");
    CHECK(popped(64) == "4 5 6 7");
    CHECK(outcome_of(client->queue_pop_some("q", 10ms, 64)) ==
          "pop from 'q'" + where() + ": timed out after 10 ms");
    CHECK(outcome_of(other->queue_push("q", "8")) == "done");
    CHECK(popped(64) == "8");
  }

  TEST_CASE_FIXTURE(Connected, "items of several queues are pushed at once, in their order") {
    CHECK(outcome_of(client->queue_push_all({})) == "done");
    CHECK(outcome_of(client->queue_push_all({{"q", "a"}, {"p", ""}, {"q", "b"}})) == "done");
    CHECK(outcome_of(client->queue_len("p")) == "1");
    CHECK(outcome_of(other->queue_pop_some("q", 5s, 8)) == "a b");
  }

  TEST_CASE_FIXTURE(Connected, "queues and keys are discarded, whether they exist or not") {
    const std::vector<Client::Discarded> discarded{{.queue = "q", .keys = {"a", "b"}},
                                                   {.queue = "p", .keys = {}},
                                                   {.queue = "o", .keys = {"c"}}};
    CHECK(outcome_of(client->discard(discarded)) == "done");
    for (int items = 1; items <= 3; ++items) {
      for (int i = 0; i < items; ++i) CHECK(outcome_of(other->queue_push("q", "x")) == "done");
      CHECK(outcome_of(other->queue_push("o", "y")) == "done");
      CHECK(outcome_of(other->set("a", "1")) == "done");
      CHECK(outcome_of(other->set("kept", "2")) == "done");
      CHECK(outcome_of(other->check({"a"})) == "true");
      CHECK(outcome_of(client->discard(discarded)) == "done");
      CHECK(outcome_of(other->queue_len("q")) == "0");
      CHECK(outcome_of(other->queue_len("o")) == "0");
      CHECK(outcome_of(other->check({"a"})) == "false");
      CHECK(outcome_of(client->get("kept", 5s)) == "2");
    }
  }

  TEST_CASE_FIXTURE(Connected,
                    "a last will is pushed when its connection is lost, unless it was cleared") {
    CHECK(client->has_extensions());
    Client& third = connect();
    CHECK(outcome_of(client->set_last_will("inbox", "lost")) == "done");
    CHECK(outcome_of(third.set_last_will("inbox", "never said")) == "done");
    CHECK(outcome_of(third.clear_last_will()) == "done");
    third.close();
    client->close();
    CHECK(outcome_of(other->queue_pop("inbox", kLimit)) == "lost");
    run_until([this] { return server->connection_count() == 1; });
    CHECK(outcome_of(other->queue_len("inbox")) == "0");
  }

  TEST_CASE_FIXTURE(Connected,
                    "without extensions a pop takes two requests, and last wills are refused") {
    Client& plain = connect({.probes_extensions = false});
    std::string popped;
    tasks.spawn(note(plain.queue_pop("q", kLimit), popped));
    run_until([this] { return server->keyspace().wait_count() == 1; });
    CHECK(outcome_of(other->queue_push("q", "item")) == "done");
    run_until([&] { return !popped.empty(); });
    CHECK(popped == "item");
    CHECK(outcome_of(plain.queue_pop("q", 1ms)) ==
          "pop from 'q'" + where() + ": timed out after 1 ms");
    CHECK(outcome_of(plain.set_last_will("q", "x")) ==
          "leave a last will for 'q'" + where() + ": the server has no extensions");
    CHECK(outcome_of(plain.add("n", 1)) == "1");
  }

  TEST_CASE_FIXTURE(Connected, "a call that waits ends when what it waits for comes") {
    std::string got, popped, passed;
    Client& third = connect();
    tasks.spawn(note(client->get("k", kLimit), got));
    tasks.spawn(note(other->queue_pop("q", kLimit), popped));
    tasks.spawn(note(third.barrier("b", 2, kLimit), passed));
    run_until([&] { return server->keyspace().wait_count() == 3; });
    CHECK(got + popped + passed == "");
    Client& setter = connect();
    CHECK(outcome_of(setter.set("k", "v")) == "done");
    CHECK(outcome_of(setter.queue_push("q", "item")) == "done");
    CHECK(outcome_of(setter.barrier("b", 2, kLimit)) == "done");
    run_until([&] { return !got.empty() && !popped.empty() && !passed.empty(); });
    CHECK(got == "v");
    CHECK(popped == "item");
    CHECK(passed == "done");
  }

  TEST_CASE_FIXTURE(Connected, "what our client greets with is not taken for its process id") {
    std::string waited;
    tasks.spawn(note(client->wait({"k"}, kLimit), waited));
    run_until([&] { return !server->waiters().empty(); });
    CHECK_FALSE(server->waiters().front().pid.has_value());
    CHECK(outcome_of(other->set("k", "v")) == "done");
    run_until([&] { return !waited.empty(); });
    CHECK(waited == "done");
  }

  TEST_CASE_FIXTURE(Connected, "a wait that times out says so, and leaves the connection usable") {
    CHECK(outcome_of(client->get("k", 1ms)) == "get 'k'" + where() + ": timed out after 1 ms");
    CHECK(outcome_of(client->wait({"a", "b"}, 0s)) ==
          "wait for 'a', 'b'" + where() + ": timed out after 0 ms");
    CHECK(outcome_of(client->queue_pop("q", 1ms)) ==
          "pop from 'q'" + where() + ": timed out after 1 ms");
    CHECK(outcome_of(client->barrier("bar", 2, 1ms)) ==
          "barrier 'bar'" + where() + ": timed out after 1 ms");
    CHECK(outcome_of(client->add("n", 1)) == "1");
  }

  TEST_CASE_FIXTURE(Connected, "calls made at the same time are carried out one after the other") {
    std::string first, second, third;
    tasks.spawn(note(client->get("k", kLimit), first));
    tasks.spawn(note(client->add("n", 1), second));
    tasks.spawn(note(client->add("n", 1), third));
    run_until([&] { return server->keyspace().wait_count() == 1; });
    CHECK(second == "");
    CHECK(outcome_of(other->set("k", "v")) == "done");
    run_until([&] { return !third.empty() && !second.empty(); });
    CHECK(first == "v");
    CHECK(second == "1");
    CHECK(third == "2");
  }

  TEST_CASE_FIXTURE(Connected, "a cancelled call closes the connection, and later calls say so") {
    std::string outcome;
    {
      TaskGroup doomed(context.get_executor(), [](std::exception_ptr) { FAIL("a task threw"); });
      doomed.spawn(note(client->get("k", kLimit), outcome));
      run_until([&] { return server->keyspace().wait_count() == 1; });
      doomed.cancel();
      run_until([&] { return doomed.empty(); });
    }
    run_until([&] { return server->keyspace().wait_count() == 0; });
    CHECK(outcome_of(client->add("n", 1)) == "add to 'n'" + where() + ": the connection is closed");
    CHECK(outcome_of(other->add("n", 1)) == "1");
  }

  TEST_CASE_FIXTURE(Connected, "a server that goes away ends the calls at once") {
    std::string outcome;
    tasks.spawn(note(client->get("k", kLimit), outcome));
    run_until([&] { return server->keyspace().wait_count() == 1; });
    server->close();
    run_until([&] { return !outcome.empty(); });
    CHECK(outcome == "get 'k'" + where() + ": the server closed the connection");
  }

  TEST_CASE_FIXTURE(Loop, "a client waits for a server that is not there yet") {
    std::uint16_t port = unused_port();
    std::optional<Result<std::unique_ptr<Client>>> client;
    tasks.spawn(
        keep(Client::connect(context.get_executor(), {.host = "localhost", .port = port}), client));
    for (int i = 0; i < 5; ++i) context.run_one_for(kLimit);  // it has tried, and pauses
    CHECK_FALSE(client.has_value());
    listen(port);
    run_until([&] { return client.has_value(); });
    clients.push_back(std::move(*client).value());
    CHECK(clients[0]->peer() == "localhost:" + std::to_string(port) + " (127.0.0.1)");
    CHECK(outcome_of(clients[0]->add("n", 1)) == "1");
  }

  TEST_CASE_FIXTURE(Loop, "a server without our extensions, as torch's, is connected to again") {
    ServerConfig plain{.listen = {.host = "127.0.0.1", .port = 0}};
    plain.wire.has_extensions = false;
    server = Server::listen(context.get_executor(), plain).value();
    Client& client = connect({.namespace_name = "run7"});
    CHECK_FALSE(client.has_extensions());
    CHECK(outcome_of(client.queue_push("q", "item")) == "done");
    CHECK(outcome_of(client.queue_pop("q", kLimit)) == "item");
    CHECK(outcome_of(client.set("k", "in the only space there is")) == "done");
    CHECK(server->keyspace().key_count() == 1);
  }

  TEST_CASE_FIXTURE(Loop, "giving up names the addresses tried and what each answered") {
    std::string port = std::to_string(unused_port());
    Endpoint endpoint{.host = "127.0.0.1", .port = static_cast<std::uint16_t>(std::stoi(port))};
    std::string outcome =
        outcome_of(Client::connect(context.get_executor(), endpoint, {.connect_timeout = 30ms}));
    CHECK(outcome.starts_with("connect to 127.0.0.1:" + port + ": gave up after "));
    CHECK(outcome.ends_with("connect to 127.0.0.1:" + port + ": Connection refused"));
  }

  TEST_CASE_FIXTURE(Loop, "an address that does not answer leaves time for the next one") {
    server = Server::listen(context.get_executor(), {.listen = {.host = "127.0.0.1"}}).value();
    const std::uint16_t port = server->endpoint().port;
    Fd mute = listen_on({.host = "127.0.0.2", .port = port}).value();
    Resolver resolver(
        context.get_executor(), nullptr,
        [&](const Endpoint&, const Resolver::OnAnswer& on_answer) {
          on_answer(Addresses{{asio::ip::make_address("127.0.0.2"), port},
                              {asio::ip::make_address("127.0.0.1"), port}});
          return nullptr;
        },
        ddprun::mono_now);
    const ddprun::MonoTime begin = ddprun::mono_now();
    const Endpoint two{.host = "two", .port = port};
    std::optional<Result<std::unique_ptr<Client>>> client;
    tasks.spawn(
        keep(Client::connect(context.get_executor(), two,
                             {.connect_timeout = 3s, .tries_once = true, .resolver = &resolver}),
             client));
    run_until([&] { return client.has_value(); });
    REQUIRE_MESSAGE(client->has_value(), to_string(*client));
    clients.push_back(std::move(*client).value());
    CHECK(ddprun::mono_now() < begin + 3s);  // and not when the time was over
    CHECK(clients[0]->peer() == "two:" + std::to_string(port) + " (127.0.0.1)");
  }

  TEST_CASE_FIXTURE(Loop, "what is no store is said to be none, at once, with what it answered") {
    for (const auto& [answer, shown] : std::vector<std::pair<std::string, std::string>>{
             {"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0-OpenSSH_9.2"},
             {"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", "HTTP/1.1 400 Bad Request"},
             {std::string("\x15\x03\x01\x00\x02", 5), "\\x15\\x03\\x01\\x00\\x02"},
             {std::string(100, 'x'), std::string(64, 'x') + "..."},
             {"no", "no"}}) {
      Stranger stranger;
      std::optional<Result<std::unique_ptr<Client>>> outcome;
      tasks.spawn(
          keep(Client::connect(context.get_executor(), stranger.endpoint, {.connect_timeout = 1h}),
               outcome));
      run_until([&] { return bool(stranger.peer = accept_from(stranger.listener.get())); });
      ::send(stranger.peer.get(), answer.data(), answer.size(), 0);
      ::shutdown(stranger.peer.get(), SHUT_WR);
      run_until([&] { return outcome.has_value(); });
      CHECK(outcome->error().code == Errc::Protocol);
      CHECK(to_string(outcome->error()) ==
            to_string(stranger.endpoint) +
                " is taken by something that is not a TCPStore: it answered '" + shown + "'");
    }
  }

  TEST_CASE_FIXTURE(Loop, "who listens and says nothing is given up long before the timeout") {
    Stranger stranger;
    CHECK(outcome_of(Client::connect(context.get_executor(), stranger.endpoint,
                                     {.connect_timeout = 1h, .greeting_timeout = 50ms})) ==
          to_string(stranger.endpoint) +
              " is taken by something that is not a TCPStore: no answer came for 50 ms");
  }

  TEST_CASE_FIXTURE(Loop, "an HTTP server that waits for the end of a line is called one") {
    for (const auto& [field, is_ours] :
         std::vector<std::pair<std::string, bool>>{{"nginx", false}, {"ddprun", true}}) {
      Stranger stranger;
      std::optional<Result<std::unique_ptr<Client>>> outcome;
      ClientConfig config{.connect_timeout = 200ms, .tries_once = true};
      tasks.spawn(
          keep(Client::connect(context.get_executor(), stranger.endpoint, config), outcome));
      run_until([&] { return bool(stranger.peer = accept_from(stranger.listener.get())); });
      Fd second;
      run_until([&] { return bool(second = accept_from(stranger.listener.get())); });
      std::string answer = "HTTP/1.0 404 Not Found\r\nServer: " + field + "\r\n\r\n";
      ::send(second.get(), answer.data(), answer.size(), 0);
      run_until([&] { return outcome.has_value(); });
      std::string why = to_string(outcome->error());
      CHECK((why == to_string(stranger.endpoint) +
                        " is taken by something that is not a TCPStore: it speaks HTTP") ==
            !is_ours);
    }
  }

  TEST_CASE_FIXTURE(Loop, "who hangs up is tried again") {
    Stranger stranger;
    std::optional<Result<std::unique_ptr<Client>>> client;
    tasks.spawn(keep(Client::connect(context.get_executor(), stranger.endpoint), client));
    run_until([&] { return bool(stranger.peer = accept_from(stranger.listener.get())); });
    std::uint16_t port = stranger.endpoint.port;
    stranger = {};
    listen(port);
    run_until([&] { return client.has_value(); });
    clients.push_back(std::move(*client).value());
    CHECK(outcome_of(clients[0]->add("n", 1)) == "1");
  }

  TEST_CASE_FIXTURE(Connected, "a client in a namespace of its own shares nothing but the port") {
    CHECK(client->local_address() == "127.0.0.1");
    Client& member = connect({.namespace_name = "run7"});
    Client& neighbour = connect({.namespace_name = "run7"});
    CHECK(outcome_of(client->set("k", "common")) == "done");
    CHECK(outcome_of(member.set("k", "own")) == "done");
    CHECK(outcome_of(neighbour.get("k", kLimit)) == "own");
    CHECK(outcome_of(client->get("k", kLimit)) == "common");
    CHECK(outcome_of(member.num_keys()) == "1");
    CHECK(outcome_of(member.set_last_will("inbox", "lost")) == "done");
    member.close();
    CHECK(outcome_of(neighbour.queue_pop("inbox", kLimit)) == "lost");
    CHECK(outcome_of(other->queue_len("inbox")) == "0");
    server->renew_common_namespace();
    CHECK(outcome_of(client->get("k", 0s)).find("closed the connection") != std::string::npos);
    CHECK(outcome_of(neighbour.get("k", 0s)) == "own");
    CHECK(outcome_of(connect().num_keys()) == "0");
  }

  TEST_CASE_FIXTURE(Connected, "a launcher tells the server whom to expect") {
    CHECK(outcome_of(client->expect_world(2)) == "done");
    CHECK(outcome_of(client->expect("rank 0", 4242)) == "done");
    Client& plain = connect({.probes_extensions = false});
    CHECK(outcome_of(plain.expect("rank 1", 4243)) ==
          "announce 'rank 1'" + where() + ": the server has no extensions");
  }

  TEST_CASE_FIXTURE(Loop, "a namespace too many is refused, in words") {
    server = Server::listen(context.get_executor(),
                            {.listen = {.host = "127.0.0.1", .port = 0}, .max_namespaces = 1})
                 .value();
    connect({.namespace_name = "first"});
    CHECK(outcome_of(
              Client::connect(context.get_executor(), endpoint(), {.namespace_name = "second"})) ==
          "enter the namespace 'second' on " + to_string(endpoint()) +
              ": the server has no room for another namespace");
  }

  TEST_CASE_FIXTURE(Loop,
                    "one closing after a probe is not taken for a server without extensions") {
    Stranger stranger;
    std::optional<Result<std::unique_ptr<Client>>> client;
    tasks.spawn(keep(Client::connect(context.get_executor(), stranger.endpoint), client));
    for (int i = 0; i < 2; ++i) {
      run_until([&] { return bool(stranger.peer = accept_from(stranger.listener.get())); });
      std::string greeting(11, '\0');
      run_until([&] { return ::recv(stranger.peer.get(), greeting.data(), 10, MSG_PEEK) == 10; });
      ::send(stranger.peer.get(), greeting.data() + 6, 4, 0);
      run_until([&] { return ::recv(stranger.peer.get(), greeting.data(), 11, MSG_PEEK) == 11; });
      constexpr std::uint32_t kAll = kHasLastWill | kHasQueueTake | kHasNamespaces | kHasExpect;
      if (i == 1) ::send(stranger.peer.get(), &kAll, sizeof kAll, 0);
      if (i == 0) ::recv(stranger.peer.get(), greeting.data(), 11, 0);
      if (i == 0) stranger.peer = {};
    }
    run_until([&] { return client.has_value(); });
    CHECK(client->value()->has_extensions());
    client->value()->close();
  }

  TEST_CASE_FIXTURE(Loop,
                    "a SYN that is lost is repeated by another socket before the kernel does") {
    Fd listener = std::move(*bind_on({.host = "127.0.0.1", .port = 0}));
    REQUIRE(::listen(listener.get(), 0) ==
            0);  // full with one connection: others' SYNs are dropped
    const std::uint16_t port = local_port(listener.get()).value();
    Fd first = connected_to(port);
    const Endpoint there{.host = "127.0.0.1", .port = port};
    std::optional<Result<std::unique_ptr<Client>>> client;
    tasks.spawn(keep(Client::connect(context.get_executor(), there,
                                     {.connect_timeout = kLimit, .tries_once = true}),
                     client));
    run_until([&] { return waiting_for_syn_ack(port) >= 2; });
    Fd taken(::accept(listener.get(), nullptr, nullptr));
    Fd second;
    run_until([&] {
      second = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
      return bool(second);
    });
    tasks.cancel();  // before `client` goes
    run_until([this] { return tasks.empty(); });
  }

  TEST_CASE_FIXTURE(Loop, "where no further socket can be had the first one goes on") {
    Fd listener = std::move(*bind_on({.host = "127.0.0.1", .port = 0}));
    REQUIRE(::listen(listener.get(), 0) == 0);
    const std::uint16_t port = local_port(listener.get()).value();
    Fd first = connected_to(port);
    std::optional<Result<asio::ip::tcp::socket>> socket;
    const asio::ip::tcp::endpoint there(asio::ip::make_address("127.0.0.1"), port);
    tasks.spawn(
        keep(connect_to(context.get_executor(), there, ddprun::mono_now() + kLimit), socket));
    run_until([&] { return waiting_for_syn_ack(port) >= 1; });
    Fd taken(::accept(listener.get(), nullptr, nullptr));
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    run_until([&] { return socket.has_value(); });  // when the kernel repeats the SYN
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_MESSAGE(socket->has_value(), to_string(socket->error()));
  }

  TEST_CASE_FIXTURE(Loop, "a listener that never answers does not hold a client for ever") {
    auto mute = listen_on({.host = "127.0.0.1", .port = 0}).value();
    Endpoint endpoint{.host = "127.0.0.1", .port = local_port(mute.get()).value()};
    std::string outcome =
        outcome_of(Client::connect(context.get_executor(), endpoint, {.connect_timeout = 50ms}));
    CHECK(outcome.starts_with("connect to " + to_string(endpoint) + ": gave up after "));
    CHECK(outcome.ends_with("shake hands on " + to_string(endpoint) +
                            ": the server does not answer"));
  }

  TEST_CASE_FIXTURE(Loop, "a server that stops answering fails the call and ends the connection") {
    auto listener = listen_on({.host = "127.0.0.1", .port = 0}).value();
    Endpoint endpoint{.host = "127.0.0.1", .port = local_port(listener.get()).value()};
    std::optional<Result<std::unique_ptr<Client>>> connected;
    tasks.spawn(keep(Client::connect(context.get_executor(), endpoint,
                                     {.reply_timeout = 50ms, .probes_extensions = false}),
                     connected));
    // The other end answers the greeting, and nothing else.
    Fd peer;
    run_until([&] { return bool(peer = accept_from(listener.get())); });
    std::string greeting(10, '\0');
    run_until([&] { return ::recv(peer.get(), greeting.data(), 10, MSG_PEEK) == 10; });
    REQUIRE(::send(peer.get(), greeting.data() + 6, 4, 0) == 4);
    run_until([&] { return connected.has_value(); });
    clients.push_back(std::move(*connected).value());
    std::string where = " on " + to_string(endpoint);
    CHECK(outcome_of(clients[0]->add("n", 1)) ==
          "add to 'n'" + where + ": the server does not answer");
    CHECK(outcome_of(clients[0]->add("n", 1)) ==
          "add to 'n'" + where + ": the connection is closed");
  }

  TEST_CASE_FIXTURE(Loop, "no server makes a client ask for more memory than is of use") {
    auto listener = listen_on({.host = "127.0.0.1", .port = 0}).value();
    Endpoint endpoint{.host = "127.0.0.1", .port = local_port(listener.get()).value()};
    std::optional<Result<std::unique_ptr<Client>>> connected;
    tasks.spawn(keep(Client::connect(context.get_executor(), endpoint,
                                     {.reply_timeout = 50ms, .probes_extensions = false}),
                     connected));
    // The other end answers the greeting, and nothing else.
    Fd peer;
    run_until([&] { return bool(peer = accept_from(listener.get())); });
    std::string greeting(10, '\0');
    run_until([&] { return ::recv(peer.get(), greeting.data(), 10, MSG_PEEK) == 10; });
    REQUIRE(::send(peer.get(), greeting.data() + 6, 4, 0) == 4);
    run_until([&] { return connected.has_value(); });
    clients.push_back(std::move(*connected).value());
    std::string where = " on " + to_string(endpoint);
    const std::int64_t length = std::numeric_limits<std::int64_t>::max();
    REQUIRE(::send(peer.get(), &length, sizeof length, 0) == sizeof length);
    CHECK(outcome_of(clients[0]->compare_set("k", "", "v")) ==
          "compare_set 'k'" + where +
              ": it announced 9223372036854775807 bytes, and 1073741824 are allowed");
  }

  TEST_CASE("pauses between attempts grow, with a random part, up to a limit") {
    ConnectPause pause;
    ddprun::Duration first = pause.next();
    CHECK(first >= 15ms);
    CHECK(first <= 25ms);
    ddprun::Duration longest{};
    for (int i = 0; i < 50; ++i) longest = std::max(longest, pause.next());
    CHECK(longest > 1500ms);
    CHECK(longest <= 2500ms);
  }
}
