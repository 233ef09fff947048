// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/last_word.h"

#include <doctest/doctest.h>

#include <future>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/decide/store_keys.h"
#include "store/decide/wire.h"
#include "tests/support/raw_client.h"
#include "tests/support/running_server.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

const std::string kRecord = "generation host 17";

std::string on_wire(const std::string& key) {
  return "/" + key;
}

}  // namespace

TEST_CASE("A last word waits until a coordinator is at the store") {
  test::RunningServer server;
  LastWord word;
  word.address = "127.0.0.1";
  word.port = server.port();
  word.message = "gone";
  auto delivered = std::async(std::launch::async, [text = to_text(word)] {
    return deliver_last_word(text, std::chrono::seconds(1));
  });
  REQUIRE(server.has_waiters(1));
  test::RawClient coordinator(server.port());
  coordinator.shake_hands();
  const std::string key = on_wire(keys::kCoordinator);
  coordinator.send(store::request::Set{key, kRecord});
  const std::string inbox = on_wire(keys::inbox(kRecord));
  const std::vector<std::string_view> waits_for(1, inbox);
  coordinator.send(store::request::Wait{waits_for});
  CHECK(coordinator.receive_byte() == store::kStopWaiting);
  coordinator.send(store::request::QueuePop{inbox});
  CHECK(coordinator.receive_number() == 1);  // items taken
  CHECK(coordinator.receive_bytes() == "gone");
  CHECK(delivered.get());
}
