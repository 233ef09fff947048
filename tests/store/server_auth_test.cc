// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "store/auth/handshake.h"
#include "store/client.h"
#include "store/server.h"
#include "store/socket.h"
#include "tests/support/raw_client.h"
#include "tests/support/running_server.h"

using namespace ddprun::store;
using namespace ddprun::test;
using namespace std::chrono_literals;
using namespace std::string_view_literals;
using ddprun::Errc;
using ddprun::Result;
namespace asio = boost::asio;

namespace {

constexpr std::string_view kPlace = "ddprun";  // the reserved namespace

Secret secret_of(std::string_view text) {
  return Secret::from_text(text).value();
}

const Secret kSecret = secret_of("a secret of the run");
const Secret kOther = secret_of("a secret of others");

ServerConfig with_secret() {
  ServerConfig config;
  config.secrets = {kSecret};
  return config;
}

// A server with a reserved namespace.
struct Place : RunningServer {
  explicit Place(ServerConfig config = with_secret()) : RunningServer(std::move(config)) {
    ask([](Server& server) {
      server.reserve_namespace(std::string(kPlace));
      return 0;
    });
  }

  std::size_t keys_in_place() {
    return ask(
        [](Server& server) { return server.namespaces().find(kPlace)->keyspace.key_count(); });
  }
};

// What becomes of a client that connects and then sets and gets a key of `bytes` bytes.
std::string outcome_of(std::uint16_t port, const Secret* secret, std::size_t bytes = 3,
                       bool is_patient = true) {
  asio::io_context context(1);
  std::string outcome = "no outcome";
  auto talk = [&]() -> asio::awaitable<void> {
    ClientConfig config;
    config.namespace_name = kPlace;
    config.secret = secret;
    config.tries_once = !is_patient;
    if (!is_patient) config.reply_timeout = config.greeting_timeout = 300ms;
    ddprun::Endpoint endpoint{.host = "127.0.0.1", .port = port};  // not inside co_await: GCC 12
    auto client = co_await Client::connect(context.get_executor(), endpoint, config);
    if (!client) {
      outcome = to_string(client.error());
      co_return;
    }
    std::string value(bytes, 'v');
    auto set = co_await (*client)->set("key", value);
    auto got = co_await (*client)->get("key", 10s);
    outcome = !set            ? to_string(set.error())
              : !got          ? to_string(got.error())
              : *got == value ? "served"
                              : "changed";
  };
  asio::co_spawn(context, talk(), asio::detached);
  context.run_for(kLimit);
  return outcome;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Stands between a client and a server, and changes what the server says at one place: one
// connection, in a thread of its own.
class Spoiler {
 public:
  // `spoil` is given what the server has said so far that was not handed on, without the first
  // `spared` bytes, once there are more than `after` of it in all.
  Spoiler(std::uint16_t target, std::size_t spared, std::size_t after,
          std::function<void(std::string&)> spoil)
      : spared_(spared),
        listener_(listen_on({.host = "127.0.0.1", .port = 0}).value()),
        port_(local_port(listener_.get()).value()),
        thread_([this, target, after, spoil = std::move(spoil)] { carry(target, after, spoil); }) {}
  ~Spoiler() { thread_.join(); }
  Spoiler(const Spoiler&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  static bool is_readable(pollfd& end) { return (end.revents & (POLLIN | POLLHUP | POLLERR)) != 0; }

  void carry(std::uint16_t target, std::size_t after,
             const std::function<void(std::string&)>& spoil) {
    pollfd waiting{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 10'000) != 1) return;
    ddprun::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    RawClient server(target);
    std::size_t said = 0;
    bool is_spoiled = false;
    std::string held;
    char piece[4096];
    for (;;) {
      pollfd ends[] = {{.fd = client.get(), .events = POLLIN, .revents = 0},
                       {.fd = server.fd(), .events = POLLIN, .revents = 0}};
      if (::poll(ends, 2, 10'000) < 1) return;
      if (is_readable(ends[0])) {
        ssize_t count = ::recv(client.get(), piece, sizeof piece, 0);
        if (count <= 0) return;
        server.send(std::string_view(piece, static_cast<std::size_t>(count)));
      }
      if (!is_readable(ends[1])) continue;
      ssize_t count = ::recv(server.fd(), piece, sizeof piece, 0);
      if (count <= 0) return;
      held.assign(piece, static_cast<std::size_t>(count));
      said += held.size();
      if (!is_spoiled && said > after) {
        is_spoiled = true;
        std::size_t before = said - held.size();
        std::string rest = held.substr(before < spared_ ? spared_ - before : 0);
        held.resize(held.size() - rest.size());
        spoil(rest);
        held += rest;
      }
      if (::send(client.get(), held.data(), held.size(), MSG_NOSIGNAL) < 0) return;
    }
  }

  const std::size_t spared_;
  ddprun::Fd listener_;
  std::uint16_t port_;
  std::thread thread_;
};

// As far as to the server's challenge.
ClientHandshake begin(RawClient& client, const Secret& secret, std::string& proof) {
  ClientHandshake handshake;
  client.send(request::Authenticate{handshake.challenge()});
  proof = handshake.prove(secret, client.receive_bytes()).value_or("");
  return handshake;
}

// A handshake as far as to the proof, and the proof with sealed requests behind it, to be sent.
struct Proving {
  ClientHandshake handshake;
  std::string bytes;
};
Proving proof_and(std::string_view requests, RawClient& client) {
  std::string proof;
  Proving proving{begin(client, kSecret, proof), {}};
  encode(request::Prove{proof}, proving.bytes);
  proving.handshake.seal(requests, proving.bytes);
  return proving;
}

// The next `count` bytes that the server has sealed; fewer where it closed, or sealed nothing more.
std::string receive_sealed(SealedStream& stream, RawClient& client, std::size_t count) {
  std::string plain;
  for (std::string byte; plain.size() < count && !(byte = client.receive(1)).empty();) {
    if (!stream.open(byte, plain)) break;
  }
  return plain;
}

}  // namespace

TEST_SUITE("store/server_security") {
  TEST_CASE("who knows the secret is served in the reserved namespace, and nobody else") {
    Place place;
    CHECK(outcome_of(place.port(), &kSecret) == "served");
    CHECK(place.keys_in_place() == 1);
    CHECK(has(outcome_of(place.port(), nullptr), "asks for the secret of the run"));
    CHECK(has(outcome_of(place.port(), &kOther), "has another secret than this node"));
    CHECK(place.log() ==
          std::vector<std::string>{"refused 127.0.0.1: it has not shown that it knows the secret",
                                   "refused 127.0.0.1: it does not know the secret"});
  }

  TEST_CASE("who knows different secrets of a server never meets") {
    ServerConfig config;
    config.secrets = {kSecret, kOther};
    Place place(std::move(config));
    CHECK(outcome_of(place.port(), &kOther) == "served");
    CHECK(place.keys_in_place() == 0);
    CHECK(outcome_of(place.port(), &kSecret) == "served");
    CHECK(place.keys_in_place() == 1);
    CHECK(has(outcome_of(place.port(), nullptr), "asks for the secret of the run"));
    for (std::string_view name : {"ddprun#2"sv, "ddprun#1"sv}) {
      CAPTURE(name);
      RawClient client = client_of(place);
      std::string proof;
      ClientHandshake handshake = begin(client, kSecret, proof);
      auto stream = std::move(handshake).finish(client.send(request::Prove{proof}).receive_bytes());
      REQUIRE(stream);
      std::string request;
      encode(request::EnterNamespace{name}, request);
      encode(request::GetNumKeys{}, request);
      std::string frames;
      stream->seal(request, frames);
      client.send(std::string_view(frames));
      std::string reply = receive_sealed(*stream, client, 9);
      REQUIRE(reply.size() == 9);
      // Of one that is reserved it is not told more than that.
      CHECK(int{reply[0]} == int{name == "ddprun#2" ? kUnknownPeer : kReady});
      CHECK(reply.substr(1) == std::string(8, '\0'));
    }
  }

  TEST_CASE("large values and many replies go through the sealed stream") {
    Place place;
    for (std::size_t bytes : {1ul, 16'384ul, 16'385ul, 3'000'000ul}) {
      CAPTURE(bytes);
      CHECK(outcome_of(place.port(), &kSecret, bytes) == "served");
    }
  }

  TEST_CASE("a client that has a secret refuses a server without one") {
    Place open{ServerConfig()};
    CHECK(has(outcome_of(open.port(), &kSecret), "asks for no secret, and this node has one"));
    CHECK(outcome_of(open.port(), nullptr) == "served");
    ServerConfig plain;
    plain.wire.has_extensions = false;  // as torch's
    RunningServer torchs(std::move(plain));
    std::string outcome = outcome_of(torchs.port(), &kSecret, 3, false);
    CHECK(has(outcome, "asks for no secret, and this node has one"));
    // One of ours may close the connection as well, so another attempt may do better.
    CHECK(has(outcome, "or has no room: it closed the connection 2 times"));
  }

  TEST_CASE("the common namespace, where torch's clients are, asks for no secret") {
    Place place;
    RawClient client = client_of(place);
    CHECK(client.send(request::Add{"n", 2}).receive_number() == 2);
    CHECK(client.send(request::EnterNamespace{kPlace}).receive_byte() == kUnknownPeer);
    CHECK(client.send(request::Add{"n", 2}).receive_number() == 4);
    CHECK(client.send(request::EnterNamespace{"elsewhere"}).receive_byte() == kReady);
  }

  TEST_CASE(
      "nodes that have entered need not make room for those who have not said what they want") {
    ServerConfig config = with_secret();
    config.max_connections = 8;
    Place place(std::move(config));
    auto connect_node = [&] {
      RawClient client = client_of(place);
      std::string enter;
      encode(request::EnterNamespace{kPlace}, enter);
      client.send(std::string_view(proof_and(enter, client).bytes));
      CHECK(client.receive_bytes().size() == kProofBytes);
      CHECK(client.receive(4 + 17 + 1).size() == 22);  // the answer to it, sealed
      return client;
    };
    std::vector<RawClient> nodes;
    for (int i = 0; i < 4; ++i) nodes.push_back(connect_node());
    std::vector<RawClient> idle;
    for (int i = 0; i < 20; ++i) idle.push_back(client_of(place));
    nodes.push_back(connect_node());
    for (RawClient& node : nodes) CHECK(node.is_silent());
    auto closed = std::ranges::count_if(idle, [](RawClient& one) { return !one.is_silent(); });
    CHECK(closed >= 12);
  }

  TEST_CASE("a gate of the common namespace does not keep a node from announcing, only strangers") {
    if (::geteuid() != 0) {
      MESSAGE("skipped: only root can play another user");
      return;
    }
    Place place;
    place.ask([](Server& server) {
      server.renew_common_namespace(Gate{.user = 0});
      return 0;
    });
    auto other_users_client = [&] {
      REQUIRE(::seteuid(54321) == 0);
      RawClient client = client_of(place);
      REQUIRE(::seteuid(0) == 0);
      return client;
    };
    RawClient node = other_users_client();
    std::string proof;
    ClientHandshake handshake = begin(node, kSecret, proof);
    auto stream = std::move(handshake).finish(node.send(request::Prove{proof}).receive_bytes());
    REQUIRE(stream);
    std::string requests;
    encode(request::EnterNamespace{kPlace}, requests);
    encode(request::Expect{.name = "rank 0", .pid = 7}, requests);
    std::string frames;
    stream->seal(requests, frames);
    node.send(std::string_view(frames));
    CHECK(receive_sealed(*stream, node, 2) == std::string(2, '\0'));
    RawClient stranger = other_users_client();
    CHECK(stranger.send(request::EnterNamespace{"elsewhere"}).receive_byte() == kReady);
    stranger.send(request::Expect{.name = "rank 1", .pid = 8});
    CHECK(stranger.is_closed());
    RawClient browser(place.port());
    browser.send("GET /status HTTP/1.1\r\n\r\n"sv);
    std::string page = browser.receive_all();
    CHECK(has(page, "\"announced\": 1"));
    CHECK(has(page, "rank 0"));
  }

  TEST_CASE("a recorded handshake is of no use") {
    Place place;
    RawClient honest = client_of(place);
    std::string proof;
    ClientHandshake handshake = begin(honest, kSecret, proof);
    const std::string challenge = handshake.challenge();
    REQUIRE(honest.send(request::Prove{proof}).receive_bytes().size() == kProofBytes);
    RawClient thief = client_of(place);
    thief.send(request::Authenticate{challenge});
    CHECK(thief.receive_bytes().size() == kChallengeBytes);
    CHECK(thief.send(request::Prove{proof}).receive_bytes() == "");
    CHECK(thief.is_closed());
  }

  TEST_CASE("who hands a handshake on can neither speak nor hear") {
    Place place;
    RawClient relay = client_of(place);
    std::string proof;
    ClientHandshake victim = begin(relay, kSecret, proof);  // who thinks that this is the server
    auto stream = std::move(victim).finish(relay.send(request::Prove{proof}).receive_bytes());
    REQUIRE(stream);
    SUBCASE("plain requests end the connection") {
      for (int i = 0; i < 200; ++i) relay.send(request::EnterNamespace{kPlace});
      CHECK(relay.is_closed());
      CHECK(place.becomes_true([](Server& server) { return server.connection_count() == 0; }));
    }
    SUBCASE("a request sent twice ends it") {
      std::string request;
      encode(request::EnterNamespace{kPlace}, request);
      std::string frames;
      stream->seal(request, frames);
      relay.send(std::string_view(frames));
      std::string reply;
      REQUIRE(stream->open(relay.receive(4 + 17 + 1), reply));
      CHECK(reply == std::string(1, '\0'));
      relay.send(std::string_view(frames));
      CHECK(relay.is_closed());
    }
  }

  TEST_CASE("sealed requests may come with the proof, also in pieces") {
    for (std::size_t piece : {1ul, 60ul, 100ul, 1000ul}) {
      CAPTURE(piece);
      Place place;
      RawClient client = client_of(place);
      std::string requests;
      encode(request::EnterNamespace{kPlace}, requests);
      encode(request::Set{"/k", "v"}, requests);
      encode(request::GetNumKeys{}, requests);
      auto [handshake, bytes] = proof_and(requests, client);
      for (std::string_view left = bytes; !left.empty();
           left.remove_prefix(std::min(piece, left.size())))
        client.send(left.substr(0, piece));
      auto stream = std::move(handshake).finish(client.receive_bytes());
      REQUIRE(stream);
      std::string reply = receive_sealed(*stream, client, 9);
      CHECK(reply == std::string("\0\1\0\0\0\0\0\0\0"sv));
      CHECK(place.keys_in_place() == 1);
    }
  }

  TEST_CASE("requests that come with the proof, unsealed, are not carried out") {
    Place place;
    RawClient client = client_of(place);
    std::string proof;
    begin(client, kSecret, proof);
    std::string bytes;
    encode(request::Prove{proof}, bytes);
    encode(request::EnterNamespace{kPlace}, bytes);
    // More than a frame has room for: as one it would be waited for until it is whole.
    std::string value(2 * SealedStream::kFrameBytes, 'v');
    encode(request::Set{"/k", value}, bytes);
    client.send(std::string_view(bytes));
    CHECK(client.is_closed());
    CHECK(place.keys_in_place() == 0);
  }

  // Whoever stands between the two could put it there, and have the answers sealed for the client.
  TEST_CASE("what comes before a handshake, or into it, ends the connection") {
    Place place;
    RawClient client = client_of(place);
    ClientHandshake handshake;
    const request::Authenticate authenticate{handshake.challenge()};
    const std::vector<std::string_view> keys{"/a"};
    SUBCASE("a wait") {
      client.send(request::Wait{keys});
      client.send(authenticate);
    }
    SUBCASE("a take") {
      client.send(request::QueueTake{"/q", 60'000});
      client.send(authenticate);
    }
    SUBCASE("another namespace") {
      client.send(request::EnterNamespace{"elsewhere"});
      CHECK(client.receive_byte() == kReady);
      client.send(authenticate);
    }
    SUBCASE("a request between the two steps") {
      client.send(authenticate);
      CHECK(client.receive_bytes().size() == kChallengeBytes);
      client.send(request::QueueTake{"/q", 60'000});
    }
    SUBCASE("a ping between the two steps") {
      client.send(authenticate);
      CHECK(client.receive_bytes().size() == kChallengeBytes);
      client.send(request::Ping{7});
    }
    SUBCASE("another namespace between the two steps") {
      client.send(authenticate);
      CHECK(client.receive_bytes().size() == kChallengeBytes);
      client.send(request::EnterNamespace{"elsewhere"});
    }
    CHECK(client.is_closed());
  }

  TEST_CASE("a host of a run with a secret serves no stranger, and waits for none") {
    ServerConfig config = with_secret();
    config.serves_strangers = false;
    config.handshake_timeout = 300ms;
    Place place(std::move(config));
    RawClient stranger = client_of(place);
    stranger.send(request::Add{"n", 2});
    CHECK(stranger.is_closed());
    RawClient half_done = client_of(place);
    std::string proof;
    begin(half_done, kSecret, proof);
    CHECK(half_done.is_closed());
    CHECK(outcome_of(place.port(), &kSecret) == "served");
    CHECK(place.log() ==
          std::vector<std::string>{"refused 127.0.0.1: it has not shown that it knows the secret",
                                   place.log().back()});
    CHECK(has(place.log().back(), "no handshake in time"));
  }

  TEST_CASE("steps out of their order end the connection") {
    Place place;
    SUBCASE("a proof without a challenge") {
      RawClient client = client_of(place);
      client.send(request::Prove{std::string(kProofBytes, 'x')});
      CHECK(client.is_closed());
    }
    SUBCASE("two challenges") {
      RawClient client = client_of(place);
      std::string challenge(kChallengeBytes, 'x');
      client.send(request::Authenticate{challenge}).send(request::Authenticate{challenge});
      client.receive_bytes();
      CHECK(client.is_closed());
    }
    SUBCASE("a challenge of the wrong size") {
      RawClient client = client_of(place);
      client.send(request::Authenticate{"x"});
      CHECK(client.is_closed());
    }
  }

  TEST_CASE("thousands of handshakes that are left half done keep nobody out") {
    Place place;
    constexpr int kMany = 2000;
    std::vector<RawClient> half;
    for (int i = 0; i < kMany; ++i) {
      half.push_back(client_of(place));
      half.back().send(request::Authenticate{std::string(kChallengeBytes, 'x')});
    }
    CHECK(outcome_of(place.port(), &kSecret) == "served");
  }

  // With DDPRUN_FUZZ_SECONDS for so long.
  TEST_CASE("whatever comes in the place of a handshake, others are served") {
    Place place;
    const char* seconds = std::getenv("DDPRUN_FUZZ_SECONDS");
    auto end = std::chrono::steady_clock::now() +
               std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 0);
    std::uint32_t seed = seconds != nullptr ? std::random_device{}() : 18;
    CAPTURE(seed);
    std::minstd_rand random(seed);
    auto below = [&](std::size_t limit) { return std::size_t{random()} % limit; };
    constexpr int kAtLeast = 300;
    int count = 0;
    for (; count < kAtLeast || std::chrono::steady_clock::now() < end; ++count) {
      RawClient client = client_of(place);
      ClientHandshake handshake;
      std::string first;
      encode(request::Authenticate{handshake.challenge()}, first);
      std::string second(below(200), 'x');
      std::string third;
      std::size_t spoiled = below(3);  // the step that something is done to
      auto spoil = [&](std::string& bytes) {
        for (std::size_t times = 1 + below(4); times > 0 && !bytes.empty(); --times) {
          std::size_t at = below(bytes.size());
          switch (below(4)) {
            case 0:
              bytes[at] = static_cast<char>(random());
              break;
            case 1:
              bytes.erase(at, 1 + below(8));
              break;
            case 2:
              bytes.insert(at, std::string(1 + below(40), static_cast<char>(random())));
              break;
            default:
              bytes.append(bytes.substr(at));
          }
        }
      };
      if (spoiled == 0) spoil(first);
      client.send(std::string_view(first));
      if (spoiled != 0) {
        std::string challenge = client.receive_bytes();
        REQUIRE(challenge.size() == kChallengeBytes);
        second.clear();
        encode(request::Prove{handshake.prove(kSecret, challenge).value()}, second);
        if (spoiled == 1) spoil(second);
      }
      client.send(std::string_view(second));
      if (spoiled == 2) {
        auto stream = std::move(handshake).finish(client.receive_bytes());
        REQUIRE(stream);
        std::string plain;
        encode(request::EnterNamespace{kPlace}, plain);
        encode(request::Set{"/planted", "v"}, plain);
        stream->seal(plain, third);
        const std::string whole = third;
        spoil(third);
        if (third.starts_with(whole)) continue;  // what has been added comes too late
        client.send(std::string_view(third));
      }
      if (count % 100 == 0) CHECK(outcome_of(place.port(), &kSecret) == "served");
    }
    CHECK(outcome_of(place.port(), &kSecret) == "served");
    CHECK(place.keys_in_place() == 1);  // that of those who are served
    if (seconds != nullptr) MESSAGE(count << " spoiled handshakes, seed " << seed);
  }

  TEST_CASE("whatever is done to what the server says, no client takes it for the server's") {
    Place place;
    const char* seconds = std::getenv("DDPRUN_FUZZ_SECONDS");
    auto end = std::chrono::steady_clock::now() +
               std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 0);
    std::uint32_t seed = seconds != nullptr ? std::random_device{}() : 19;
    CAPTURE(seed);
    std::minstd_rand random(seed);
    auto below = [&](std::size_t limit) { return std::size_t{random()} % limit; };
    // The replies to PING, PROBE, AUTHENTICATE, PROVE and, sealed, ENTER_NAMESPACE.
    constexpr std::size_t kProbed = 4 + 4;
    constexpr std::size_t kShaken = kProbed + 8 + kChallengeBytes + 8 + kProofBytes;
    constexpr std::size_t kEntered = kShaken + 4 + 17 + 1;
    constexpr int kAtLeast = 150;
    int count = 0;
    for (; count < kAtLeast || std::chrono::steady_clock::now() < end; ++count) {
      // Of the bits that name the server's extensions not all matter.
      std::size_t after = kProbed + below(kEntered - kProbed);
      std::string done;
      Spoiler spoiler(place.port(), kProbed, after, [&](std::string& bytes) {
        std::size_t at = below(bytes.size());
        switch (below(4)) {
          case 0:
            done = "a bit was changed at " + std::to_string(at);
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
            break;
          case 1:
            done = "bytes were taken away at " + std::to_string(at);
            bytes.erase(at, 1 + below(8));
            break;
          case 2:
            done = "bytes were put in at " + std::to_string(at);
            bytes.insert(at, std::string(1 + below(40), static_cast<char>(random())));
            break;
          default:
            done = "bytes were put behind it";
            bytes.append(1 + below(40), static_cast<char>(below(3)));
        }
      });
      std::string outcome = outcome_of(spoiler.port(), &kSecret, 3, false);
      CAPTURE(after);
      CAPTURE(done);
      CHECK(outcome != "served");
      CHECK(outcome != "no outcome");
    }
    CHECK(outcome_of(place.port(), &kSecret) == "served");
    if (seconds != nullptr) MESSAGE(count << " spoiled answers, seed " << seed);
  }

  TEST_CASE("the pages are for those who have the token") {
    Place place;
    auto status_of = [&](const std::string& target, const std::string& header = "") {
      RawClient reader(place.port());
      reader.send(std::string_view("GET " + target + " HTTP/1.1\r\n" + header + "\r\n"));
      std::string page = reader.receive_all();
      return page.substr(0, page.find("\r\n"));
    };
    // This test's own user is let in on loopback.
    CHECK(status_of("/status") == "HTTP/1.1 200 OK");
    CHECK(status_of("/healthz") == "HTTP/1.1 200 OK");
    CHECK(status_of("/status", "Authorization: Bearer " + kSecret.page_token() + "\r\n") ==
          "HTTP/1.1 200 OK");
  }
}
