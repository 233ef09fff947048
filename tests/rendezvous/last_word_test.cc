// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/last_word.h"

#include <doctest/doctest.h>

#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/decide/store_keys.h"
#include "store/decide/wire.h"
#include "tests/support/raw_client.h"
#include "tests/support/running_server.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

const std::string kRecord = "generation host 17";

std::string on_wire(const std::string& key) {
  return "/" + key;
}

}  // namespace

TEST_CASE("A last word is kept for a later agent of the machine, whether it is delivered or not") {
  test::TempDir temp;
  LastWord word;
  word.address = "127.0.0.1";
  word.port = 1;  // nobody is there
  word.message = "gone";
  word.keep_at = temp.path() + "/run-a.left";
  word.why = "was lost (its agent, pid 7, was killed)";
  CHECK_FALSE(deliver_last_word(to_text(word), std::chrono::milliseconds(1)));
  std::ifstream in(word.keep_at);
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == word.why);
}

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
