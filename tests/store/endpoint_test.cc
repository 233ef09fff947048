// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/endpoint.h"

#include <doctest/doctest.h>

#include <string>

using ddprun::Endpoint;
using ddprun::is_address_of_machine;
using ddprun::is_loopback_host;
using ddprun::is_numeric_host;
using ddprun::parse_endpoint;

namespace {

std::string parsed(std::string_view text) {
  ddprun::Result<Endpoint> endpoint = parse_endpoint(text, 29400);
  return endpoint ? to_string(*endpoint) : to_string(endpoint.error());
}

}  // namespace

TEST_SUITE("store/base/endpoint") {
  TEST_CASE("host and port, with the default port where none is given") {
    CHECK(parsed("node0:29500") == "node0:29500");
    CHECK(parsed("node0") == "node0:29400");
    CHECK(parsed("localhost:0") == "localhost:0");
  }

  TEST_CASE("IPv6 addresses take brackets before a port, and need none without") {
    CHECK(parsed("[::1]:29500") == "[::1]:29500");
    CHECK(parsed("[fe80::1]") == "[fe80::1]:29400");
    CHECK(parsed("fe80::1") == "[fe80::1]:29400");
  }

  TEST_CASE("what is not an endpoint is refused with the text and the reason") {
    CHECK(parsed("node0:http") ==
          "'node0:http' is not host:port: 'http' is not a port (a number from 0 to 65535)");
    CHECK(parsed("node0:65536") ==
          "'node0:65536' is not host:port: '65536' is not a port (a number from 0 to 65535)");
    CHECK(parsed("node0:") ==
          "'node0:' is not host:port: '' is not a port (a number from 0 to 65535)");
    CHECK(parsed(":29500") == "':29500' is not host:port: the host is empty");
    CHECK(parsed("") == "'' is not host:port: the host is empty");
    CHECK(parsed("[::1") == "'[::1' is not host:port: ']' is missing");
    CHECK(parsed("[::1]29500") == "'[::1]29500' is not host:port: only ':port' may follow ']'");
    CHECK(parsed("fe80::1:29500") ==
          "'fe80::1:29500' is not host:port: an IPv6 address with a port is written as "
          "[::1]:29500");
    CHECK(parsed("node0:1:2").starts_with("'node0:1:2' is not host:port: "));
    CHECK(parsed("node 0:1") == "'node 0:1' is not host:port: the host contains a blank");
  }

  TEST_CASE("an address is known by its text alone") {
    for (const char* host : {"127.0.0.1", "0.0.0.0", "::", "fe80::1", "fe80::1%eth0"})
      CHECK(is_numeric_host(host));
    for (const char* host : {"", "localhost", "node0", "1.2.3", "1.2.3.4/8", "%eth0", "::1:29500"})
      CHECK_FALSE(is_numeric_host(host));
  }

  TEST_CASE("what cannot be the address of another machine is none") {
    for (const char* host : {"10.0.0.1", "240.0.0.1", "fd00::1", "fe80::1%eth0", "::ffff:10.0.0.1"})
      CHECK(is_address_of_machine(host));
    for (const char* host :
         {"", "node0", "127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.2.3",
          "255.255.255.255", "::", "::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:224.0.0.1"})
      CHECK_FALSE(is_address_of_machine(host));
  }

  TEST_CASE("a loopback host is known by its text alone") {
    CHECK(is_loopback_host("localhost"));
    CHECK(is_loopback_host("127.0.0.1"));
    CHECK(is_loopback_host("127.0.1.1"));
    CHECK(is_loopback_host("::1"));
    CHECK_FALSE(is_loopback_host("127.example.org"));
    CHECK_FALSE(is_loopback_host("node0"));
    CHECK_FALSE(is_loopback_host("10.0.0.1"));
  }
}
