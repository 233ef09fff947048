// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/allow_list.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

using ddprun::store::AllowList;

namespace {

bool admits(std::string_view list, const std::string& address) {
  return AllowList::parse(list).value().admits(address);
}

std::string error_of(std::string_view list) {
  auto parsed = AllowList::parse(list);
  return parsed ? "none" : to_string(parsed.error());
}

}  // namespace

TEST_SUITE("store/decide/allow_list") {
  TEST_CASE("an empty list admits everybody") {
    CHECK(AllowList().admits("10.0.0.7"));
    CHECK(AllowList().admits("2001:db8::1"));
    CHECK(AllowList().empty());
  }

  TEST_CASE("a range admits what shares its prefix, to the bit") {
    CHECK(admits("10.0.0.0/8", "10.255.255.255"));
    CHECK_FALSE(admits("10.0.0.0/8", "11.0.0.0"));
    CHECK(admits("10.1.2.128/25", "10.1.2.128"));
    CHECK_FALSE(admits("10.1.2.128/25", "10.1.2.127"));
    CHECK(admits("172.16.0.0/12", "172.31.255.1"));
    CHECK_FALSE(admits("172.16.0.0/12", "172.32.0.0"));
    CHECK(admits("10.0.0.7", "10.0.0.7"));
    CHECK_FALSE(admits("10.0.0.7", "10.0.0.6"));
    CHECK(admits("2001:db8::/33", "2001:db8:7fff::1"));
    CHECK_FALSE(admits("2001:db8::/33", "2001:db8:8000::1"));
    CHECK(admits("::1", "::1"));
    CHECK(admits("0.0.0.0/0", "203.0.113.9"));
    CHECK(admits("::/0", "2001:db8::1"));
  }

  TEST_CASE("several ranges are tried one after the other") {
    for (const char* address : {"10.9.9.9", "192.168.1.7", "fd00::1"}) {
      CHECK(admits("10.0.0.0/8,192.168.1.7,fd00::/8", address));
    }
    CHECK_FALSE(admits("10.0.0.0/8,192.168.1.7,fd00::/8", "192.168.1.8"));
  }

  TEST_CASE("IPv4 in the clothes of IPv6 is IPv4, in the list and at the door") {
    CHECK(admits("10.0.0.0/8", "::ffff:10.0.0.7"));
    CHECK(admits("::ffff:10.0.0.0/104", "10.0.0.7"));
    CHECK_FALSE(admits("::ffff:10.0.0.0/104", "11.0.0.7"));
    CHECK(admits("::ffff:10.0.0.7", "10.0.0.7"));
    CHECK_FALSE(admits("::/0", "10.0.0.7"));
    CHECK_FALSE(admits("0.0.0.0/0", "2001:db8::1"));
  }

  TEST_CASE("nobody is admitted for being on this machine, or for having no address") {
    CHECK_FALSE(admits("10.0.0.0/8", "127.0.0.1"));
    CHECK_FALSE(admits("10.0.0.0/8", "unknown peer"));
    CHECK_FALSE(admits("0.0.0.0/0", ""));
  }

  TEST_CASE("what is no range is refused with what is wrong") {
    CHECK(error_of("") == "'' is not a range of addresses: '' is not a numeric address");
    CHECK(error_of("10.0.0.0/8,") == "'' is not a range of addresses: '' is not a numeric address");
    CHECK(error_of("node0") ==
          "'node0' is not a range of addresses: 'node0' is not a numeric address");
    CHECK(error_of("10.0.0.0/33") ==
          "'10.0.0.0/33' is not a range of addresses: the prefix is a number from 0 to 32");
    CHECK(error_of("::/129") ==
          "'::/129' is not a range of addresses: the prefix is a number from 0 to 128");
    for (const char* text : {"10.0.0.0/", "10.0.0.0/x", "10.0.0.0/-1", "10.0.0.0/8 ", "::/8/8"}) {
      CHECK(error_of(text).find("the prefix is a number from 0 to ") != std::string::npos);
    }
    CHECK(error_of("10.0.0.7/8") ==
          "'10.0.0.7/8' is not a range of addresses: it has bits behind the prefix; "
          "10.0.0.0/8 has none");
    CHECK(error_of("fd00::1/8").ends_with("; fd00::/8 has none"));
  }
}
