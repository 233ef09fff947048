// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer's bytes as what an end of the handshake hears from a stranger, and as what somebody
// between two ends does to their frames.  scripts/fuzz builds and runs it.
//
//  1. Nothing that a stranger says shows that it knows the secret.
//  2. Of what was sealed only a beginning is opened, whatever is changed, left out or repeated.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/auth/handshake.h"
#include "store/base/check.h"
#include "tests/fuzz/input.h"

using namespace ddprun::store;
using ddprun::check;
using ddprun::test::FuzzInput;

namespace {

const Secret& ours() {
  static const Secret secret = Secret::from_text("a secret of the nodes of a run").value();
  return secret;
}

void strangers_client(FuzzInput input) {
  ServerHandshake server({ours(), Secret::from_text("the secret of another group").value()});
  auto challenge = server.challenge(input.next_part());
  check(!server.challenge("again"), "a second challenge was taken");
  check(!server.check(input.next_part()), "a stranger has shown that it knows the secret");
  check(!server.check(input.rest()), "a second proof was taken");
}

void strangers_server(FuzzInput input) {
  ClientHandshake client;
  if (!client.prove(ours(), input.next_part())) return;
  std::string frames;
  client.seal(input.next_part(), frames);
  check(!std::move(client).finish(input.rest()), "a stranger passes for the server");
}

struct Ends {
  SealedStream client, server;
};

Ends shake_hands() {
  ClientHandshake client;
  ServerHandshake server({ours()});
  auto proof = client.prove(ours(), server.challenge(client.challenge()).value());
  auto proved = server.check(proof.value());
  check(proved.has_value(), "the server does not know its client");
  auto stream = std::move(client).finish(proved->answer);
  check(stream.has_value(), "the client does not know its server");
  return {std::move(*stream), std::move(proved->stream)};
}

// Four frames; each step of the input sends one of them, from some byte to another, or something of
// its own.
void somebody_between(FuzzInput input) {
  Ends ends = shake_hands();
  std::string plain;
  std::vector<std::string> frames;
  for (int i = 0; i < 4; ++i) {
    std::string text = "frame " + std::to_string(i) + std::string(static_cast<std::size_t>(i), '.');
    plain += text;
    ends.client.seal(text, frames.emplace_back());
  }
  std::string opened;
  bool is_whole = true;
  while (is_whole && !input.empty()) {
    std::string piece(input.next_part());
    if (!piece.empty() && piece[0] >= 0) {
      std::string frame = frames[static_cast<std::size_t>(piece[0]) % frames.size()];
      std::size_t from = piece.size() > 1 ? static_cast<unsigned char>(piece[1]) : 0;
      std::size_t count = piece.size() > 2 ? static_cast<unsigned char>(piece[2]) : frame.size();
      piece = frame.substr(std::min(from, frame.size()), count);
    }
    is_whole = ends.server.open(piece, opened);
    check(plain.starts_with(opened), "something else was opened than was sealed");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzInput input(data, size);
  std::size_t which = input.next_byte();
  if (which % 3 == 0) strangers_client(input);
  if (which % 3 == 1) strangers_server(input);
  if (which % 3 == 2) somebody_between(input);
  return 0;
}
