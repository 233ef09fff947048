// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes as an HTTP request to the store, and as etcd's response with its JSON, in
// pieces.  scripts/fuzz builds and runs it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/etcd/decide/messages.h"
#include "rendezvous/etcd/http.h"
#include "store/base/check.h"
#include "store/http.h"
#include "tests/fuzz/input.h"

using namespace ddprun;

namespace {

constexpr std::size_t kLongestTarget = 8192;

// Feeds a reader in pieces of `step` bytes, until it wants no more.
template <class Reader>
typename Reader::State feed(Reader& reader, std::string_view bytes, std::size_t step) {
  auto state = Reader::State::NeedMore;
  while (state == Reader::State::NeedMore && !bytes.empty()) {
    state = reader.feed(bytes.substr(0, step));
    bytes.remove_prefix(std::min(step, bytes.size()));
  }
  return state;
}

void request(std::string_view bytes, std::size_t step) {
  store::HttpReader reader;
  if (feed(reader, bytes, step) != store::HttpReader::State::Done) return;
  check(reader.target().size() <= kLongestTarget, "a target is longer than a header may be");
  check(reader.method().size() + reader.bearer().size() <= bytes.size(), "it says more than came");
}

void response(std::string_view bytes, std::size_t step) {
  using rendezvous::etcd::HttpResponseReader;
  HttpResponseReader reader;
  auto state = feed(reader, bytes, step);
  if (state == HttpResponseReader::State::NeedMore) state = reader.end();
  if (state != HttpResponseReader::State::Done) return;
  auto answer = reader.take();
  rendezvous::etcd::decode_txn(answer.body);
  rendezvous::etcd::decode_lease(answer.body);
  rendezvous::etcd::decode_token(answer.body);
  rendezvous::etcd::read_refusal(answer.status, answer.body);
}

void body(std::string_view text) {
  rendezvous::etcd::decode_txn(text);
  rendezvous::etcd::decode_lease(text);
  rendezvous::etcd::decode_token(text);
  rendezvous::etcd::read_refusal(400, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::FuzzInput input(data, size);
  std::size_t which = input.next_byte();
  std::size_t step = input.next_byte() + 1;
  if (which % 3 == 0) request(input.rest(), step);
  if (which % 3 == 1) response(input.rest(), step);
  if (which % 3 == 2) body(input.rest());
  return 0;
}
