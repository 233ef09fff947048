// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/gate.h"

#include <doctest/doctest.h>

#include <string>

using ddprun::store::Gate;
using ddprun::store::is_this_machine;
using ddprun::store::PeerProcess;
using ddprun::store::why_refused;

namespace {

Gate gate_for(std::initializer_list<const char*> machines) {
  Gate gate{.user = 1000, .advice_for_machines = "; A", .advice_for_users = "; B"};
  for (const char* address : machines) gate.machines.add(address);
  return gate;
}

std::string refusal_of(const Gate& gate, const PeerProcess& process) {
  auto refusal = why_refused(gate, process);
  return refusal ? refusal->peer + ": " + refusal->why : "none";
}

PeerProcess of_user(std::uint32_t user) {
  return {.is = PeerProcess::Is::Known, .user = user};
}

}  // namespace

TEST_SUITE("store/decide/gate") {
  TEST_CASE("of other machines only those that are listed are admitted") {
    Gate gate = gate_for({"10.0.0.7", "fd00::7"});
    CHECK_FALSE(why_refused(gate, "10.0.0.7"));
    CHECK_FALSE(why_refused(gate, "fd00::7"));
    CHECK_FALSE(why_refused(gate, "::ffff:10.0.0.7"));
    auto refusal = why_refused(gate, "10.0.0.8");
    REQUIRE(refusal);
    CHECK(refusal->peer == "10.0.0.8");
    CHECK(refusal->why == "its address is not allowed; A");
    CHECK(why_refused(gate_for({}), "10.0.0.8"));
    gate.any_machine = true;
    CHECK_FALSE(why_refused(gate, "10.0.0.8"));
  }

  TEST_CASE("this machine is loopback, the address reached, and the gate's own ones") {
    Gate gate = gate_for({"172.17.0.1"});
    gate.own.add("172.17.0.1");
    CHECK(is_this_machine(gate, "127.0.0.9", "10.0.0.7"));
    CHECK(is_this_machine(gate, "::1", "::1"));
    CHECK(is_this_machine(gate, "10.0.0.7", "10.0.0.7"));
    CHECK(is_this_machine(gate, "172.17.0.1", "10.0.0.7"));
    CHECK_FALSE(is_this_machine(gate, "10.0.0.8", "10.0.0.7"));
  }

  TEST_CASE("of this machine's users the gate's, root, and those it is told of are admitted") {
    Gate gate = gate_for({});
    CHECK(refusal_of(gate, of_user(1000)) == "none");
    CHECK(refusal_of(gate, of_user(0)) == "none");
    CHECK(refusal_of(gate, of_user(1001)) ==
          "a process of user 1001 on this machine: the store is for user 1000; B");
    gate.admits_user = [](std::uint32_t user) { return user == 1001; };
    CHECK(refusal_of(gate, of_user(1001)) == "none");
    CHECK(refusal_of(gate, of_user(1002)) != "none");
    gate.any_user = true;
    CHECK(refusal_of(gate, of_user(1002)) == "none");
  }

  TEST_CASE("a process that is not known is refused, unless the system cannot say") {
    Gate gate = gate_for({});
    CHECK(refusal_of(gate, {.is = PeerProcess::Is::Gone}) == ": ");
    CHECK(refusal_of(gate, {.is = PeerProcess::Is::Absent}).starts_with("a process of this"));
    CHECK(refusal_of(gate, {.is = PeerProcess::Is::Unasked}) == "none");
  }
}
