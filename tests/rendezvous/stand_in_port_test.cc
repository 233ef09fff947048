// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/stand_in_port.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "store/socket.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

// 0, or what the system answers.
int connect_to(std::uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bool is_connected =
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return is_connected ? 0 : errno;
}

}  // namespace

TEST_CASE("a port to stand in on is refused until it is opened, and may be opened again") {
  for (const char* host : {"", "127.0.0.1", "localhost"}) {
    CAPTURE(host);
    auto port = StandInPort::take(host);
    REQUIRE(port.has_value());
    for (int time = 0; time < 3; ++time) {
      CHECK(connect_to(port->port()) == ECONNREFUSED);
      auto listener = port->listen();
      REQUIRE(listener.has_value());
      CHECK(store::local_port(listener->get()).value() == port->port());
      CHECK(connect_to(port->port()) == 0);
    }
  }
}

TEST_CASE("no other process is given the port meanwhile") {
  auto port = StandInPort::take("127.0.0.1");
  REQUIRE(port.has_value());
  for (int i = 0; i < 1000; ++i) {
    auto other = store::listen_on({.host = "127.0.0.1", .port = 0});
    REQUIRE(other.has_value());
    REQUIRE(store::local_port(other->get()).value() != port->port());
  }
}

TEST_CASE("an address that is none of this machine is no place to stand in") {
  CHECK_FALSE(StandInPort::take("192.0.2.1").has_value());
}
