// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/endpoint_list.h"

#include <doctest/doctest.h>

#include <string>

using namespace ddprun;
using namespace ddprun::cli;

namespace {

// "a:1,b:29400", or why not.
std::string read(const std::string& text, std::uint16_t least_port = 1) {
  auto endpoints = parse_endpoints({text, "--rdzv-endpoint"}, 29400, least_port);
  if (!endpoints) return to_string(endpoints.error());
  std::string names;
  for (const Endpoint& each : *endpoints) names += (names.empty() ? "" : ",") + to_string(each);
  return names;
}

}  // namespace

TEST_SUITE("cli/config/endpoint_list") {
  TEST_CASE("one or several, with the default port where none is given") {
    CHECK(read("node0") == "node0:29400");
    CHECK(read("a:1,b,[::1]:2") == "a:1,b:29400,[::1]:2");
  }

  TEST_CASE("an empty one is named by its place") {
    const std::string they_are = " is empty; they are HOST:PORT,HOST:PORT";
    CHECK(read("a:1,,b:2") == "--rdzv-endpoint=a:1,,b:2: endpoint 2 of 3" + they_are);
    CHECK(read("a,") == "--rdzv-endpoint=a,: endpoint 2 of 2" + they_are);
    CHECK(read(",a") == "--rdzv-endpoint=,a: endpoint 1 of 2" + they_are);
  }

  TEST_CASE("the ports that are accepted are the ports that the sentence names") {
    CHECK(read("a:0", 0) == "a:0");
    for (const char* port : {"0", "65536", "x"}) {
      const std::string text = std::string("a:") + port;
      CHECK(read(text) == "--rdzv-endpoint='" + text + "' is not host:port: '" + port +
                              "' is not a port (a number from 1 to 65535)");
    }
    CHECK(read("a:65536", 0).ends_with("'65536' is not a port (a number from 0 to 65535)"));
  }
}
