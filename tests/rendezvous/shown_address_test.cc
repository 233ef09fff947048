// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/shown_address.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

using Addresses = std::vector<std::string>;

const Addresses kHere{"127.0.0.1", "10.0.0.1", "192.168.0.1", "fe80::1"};

Addresses believed(const Addresses& said, const std::string& shown) {
  return believed_addresses(said, shown, kHere);
}

}  // namespace

TEST_CASE("ShownAddress: a node with several networks is believed by the one that it shows") {
  Addresses said{"10.0.0.7", "192.168.0.7", "fd00::7"};
  for (const std::string& shown : said) CHECK(believed(said, shown) == said);
  CHECK(believed({"fd00:0::7"}, "fd00::7") == Addresses{"fd00:0::7"});
  CHECK(believed({"::ffff:10.0.0.7"}, "10.0.0.7") == Addresses{"::ffff:10.0.0.7"});
}

TEST_CASE("ShownAddress: of a node that shows another one nothing is believed") {
  CHECK(believed({"10.0.0.7", "10.0.0.8"}, "10.0.0.9").empty());
  CHECK(believed({"10.0.0.1"}, "10.0.0.9").empty());
  CHECK(believed({}, "10.0.0.9").empty());
  CHECK(believed({"10.0.0.7"}, "").empty());  // the connection has gone
}

TEST_CASE("ShownAddress: who connects from this machine has its addresses and no others") {
  for (const char* shown : {"127.0.0.1", "127.0.1.1", "::1", "10.0.0.1", "fe80::1"}) {
    CHECK(believed({"10.0.0.1", "10.0.0.9", "192.168.0.1"}, shown) ==
          Addresses{"10.0.0.1", "192.168.0.1"});
    CHECK(believed({"10.0.0.9"}, shown).empty());
  }
}

TEST_CASE("ShownAddress: the log names who is not believed, and what to do") {
  request::Join join;
  join.host = "node1";
  join.pid = 7;
  join.addresses = {"10.0.0.7", "10.0.0.8"};
  CHECK(unbelieved_text(join, "10.0.0.7", join.addresses) == "");
  std::string text = unbelieved_text(join, "10.0.0.9", {});
  CHECK(text.find("node1 (pid 7) connects from 10.0.0.9, which is not among") == 0);
  CHECK(text.find("none of them is admitted") != std::string::npos);
  CHECK(text.find("--worker-store-allow") != std::string::npos);
}
