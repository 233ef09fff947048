// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes as each text that comes from another node, from a host or from a file that
// others can write.  scripts/fuzz builds and runs it.
//
// What is read and written again is read as the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/decide/host_entry.h"
#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/node_file.h"
#include "rendezvous/decide/pulse.h"
#include "rendezvous/decide/run_file.h"
#include "store/base/check.h"
#include "tests/fuzz/input.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

void read_message(std::string_view text) {
  decode_sender(text);
  auto message = decode_message(text);
  if (!message || std::holds_alternative<request::Foreign>(message->request)) return;
  std::string written = encode(*message);
  auto again = decode_message(written);
  check(again.has_value(), "a message that was read is not one");
  check(encode(*again) == written, "a message is read in two ways");
}

void read_command(std::string_view text) {
  auto command = decode_command(text);
  if (!command) return;
  std::string written = encode(*command);
  auto again = decode_command(written);
  check(again.has_value(), "a command that was read is not one");
  check(encode(*again) == written, "a command is read in two ways");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::FuzzInput input(data, size);
  std::size_t which = input.next_byte();
  std::string_view text = input.rest();
  if (which % 6 == 0) read_message(text);
  if (which % 6 == 1) read_command(text);
  if (which % 6 == 2) decode_run_file(text);
  if (which % 6 == 3) decode_node_file(text);
  if (which % 6 == 4) decode_host_entry(text);
  if (which % 6 == 5) pulse_for("run", std::string(text));
  return 0;
}
