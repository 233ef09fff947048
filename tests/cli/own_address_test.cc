// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/own_address.h"

#include <doctest/doctest.h>

#include <cerrno>

using namespace ddprun;
using namespace ddprun::cli;

namespace {

// A machine with the address 10.0.0.7 and the name node7.
Machine machine() {
  Machine machine;
  machine.is_here = [](const std::string& host) {
    return host == "node7" || host == "10.0.0.7" || is_loopback_host(host);
  };
  machine.can_listen = [](const std::string& host) -> Result<void> {
    if (host == "10.0.0.7" || host == "::") return {};
    if (host == "fe80::1%eth0") return Error{Errc::InvalidInput, "not a numeric address"};
    return system_error(EADDRNOTAVAIL, "bind " + host + ":0");
  };
  return machine;
}

std::string why_not(const std::string& bind, const rendezvous::NetworkConfig& network) {
  Result<void> checked = check_bind({bind, "--bind"}, network, machine());
  return checked ? "" : to_string(checked.error());
}

rendezvous::NetworkConfig network_at(const std::string& host) {
  rendezvous::NetworkConfig network;
  network.endpoint = {.host = host, .port = 29400};
  return network;
}

}  // namespace

TEST_SUITE("cli/config/own_address") {
  const std::string kRefusal =
      "--bind=203.0.113.9: no interface of this machine has this address; 0.0.0.0 stands for all "
      "of "
      "them";

  TEST_CASE("a node that would host can listen at the address of --bind, or is refused") {
    for (const char* host : {"localhost", "node7", "10.0.0.7"}) {
      CHECK(why_not("10.0.0.7", network_at(host)).empty());
      CHECK(why_not("::", network_at(host)).empty());
      CHECK(why_not("203.0.113.9", network_at(host)) == kRefusal);
    }
    CHECK(why_not("fe80::1%eth0", network_at("node7")) ==
          "--bind=fe80::1%eth0: not a numeric address");
    rendezvous::NetworkConfig host = network_at("node0");
    host.is_host = true;
    CHECK(why_not("203.0.113.9", host) == kRefusal);
    rendezvous::NetworkConfig registry = network_at("203.0.113.9");
    registry.member.has_registry = true;
    CHECK(why_not("203.0.113.9", registry) == kRefusal);
  }

  TEST_CASE("a node that only joins may have the host's --bind") {
    CHECK(why_not("203.0.113.9", network_at("node0")).empty());
    rendezvous::NetworkConfig client = network_at("localhost");
    client.is_host = false;
    CHECK(why_not("203.0.113.9", client).empty());
  }

  TEST_CASE("an address of --local-addr that no interface has may be that of a NAT: a warning") {
    auto warning = [](const std::string& host) {
      return local_address_warning({host, "--local-addr"}, host, "the other nodes", machine());
    };
    CHECK(warning("10.0.0.7").empty());
    CHECK(warning("127.0.0.2").empty());
    CHECK(warning("some-name").empty());
    CHECK(warning("203.0.113.9") ==
          "--local-addr=203.0.113.9: the other nodes are told this address, which no interface of "
          "this machine has");
  }
}
