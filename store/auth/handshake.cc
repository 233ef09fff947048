// SPDX-License-Identifier: BSD-3-Clause
#include "store/auth/handshake.h"

#include <sodium.h>

#include <algorithm>
#include <utility>

#include "store/auth/sodium.h"

namespace ddprun::store {
namespace {

static_assert(sizeof(Secret::Key) == crypto_auth_BYTES);
static_assert(2 * sizeof(Secret::Key) == crypto_auth_hmacsha512_BYTES);

std::string random_challenge() {
  init_sodium();
  std::string challenge(kChallengeBytes, '\0');
  ::randombytes_buf(challenge.data(), challenge.size());
  return challenge;
}

// A proof and the header that it is for.
std::optional<std::pair<std::string_view, std::string_view>> parts_of(std::string_view answer) {
  if (answer.size() != kProofBytes) return std::nullopt;
  std::size_t mac = kProofBytes - SealedStream::kHeaderBytes;
  return std::pair(answer.substr(0, mac), answer.substr(mac));
}

unsigned char* bytes_of(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

bool is_same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Challenges::Challenges(const Secret& secret, std::string of_client, std::string of_server)
    : secret_(secret.key()), challenges_(std::move(of_client) + of_server) {}

// Each purpose begins with its length: no two are the beginning of the same bytes.
std::string Challenges::text_for(std::string_view purpose, std::string_view header) const {
  std::string text = "ddprun handshake 2 ";
  text += static_cast<char>(purpose.size());
  text += purpose;
  text += challenges_;
  text += header;
  return text;
}

std::string Challenges::proof(std::string_view end, std::string_view header) const {
  std::string text = text_for(end, header);
  std::string result(crypto_auth_BYTES, '\0');
  ::crypto_auth(bytes_of(result), bytes_of(text), text.size(), secret_.data());
  return result;
}

// The halves of one HMAC-SHA512.
Challenges::StreamKeys Challenges::stream_keys() const {
  std::string text = text_for("streams");
  std::array<unsigned char, crypto_auth_hmacsha512_BYTES> both;
  ::crypto_auth_hmacsha512_state state;
  ::crypto_auth_hmacsha512_init(&state, secret_.data(), secret_.size());
  ::crypto_auth_hmacsha512_update(&state, bytes_of(text), text.size());
  ::crypto_auth_hmacsha512_final(&state, both.data());
  StreamKeys keys;
  std::copy_n(both.begin(), keys.to_server.size(), keys.to_server.begin());
  std::copy_n(both.begin() + keys.to_server.size(), keys.to_client.size(), keys.to_client.begin());
  ::sodium_memzero(both.data(), both.size());
  return keys;
}

SealedStream Challenges::client_stream() const {
  StreamKeys keys = stream_keys();
  return {keys.to_server, keys.to_client};
}

SealedStream Challenges::server_stream() const {
  StreamKeys keys = stream_keys();
  return {keys.to_client, keys.to_server};
}

ClientHandshake::ClientHandshake() : challenge_(random_challenge()) {}

std::optional<std::string> ClientHandshake::prove(const Secret& secret,
                                                  std::string_view of_server) {
  if (of_server.size() != kChallengeBytes || challenges_) return std::nullopt;
  challenges_.emplace(secret, challenge_, std::string(of_server));
  stream_ = challenges_->client_stream();
  return challenges_->client_proof(stream_->header()) + stream_->header();
}

void ClientHandshake::seal(std::string_view requests, std::string& frames) {
  stream_->seal(requests, frames);
}

std::optional<SealedStream> ClientHandshake::finish(std::string_view answer) && {
  auto parts = parts_of(answer);
  if (!parts || !challenges_) return std::nullopt;
  auto [proof, header] = *parts;
  bool is_known = is_same(proof, challenges_->server_proof(header));
  if (!is_known || !stream_->set_peer_header(header)) return std::nullopt;
  return std::move(stream_);
}

std::optional<std::string> ServerHandshake::challenge(std::string_view of_client) {
  if (of_client.size() != kChallengeBytes || !of_client_.empty()) return std::nullopt;
  of_client_ = of_client;
  mine_ = random_challenge();
  return mine_;
}

std::optional<ServerHandshake::Proved> ServerHandshake::check(std::string_view proof) {
  std::string mine = std::exchange(mine_, "");
  auto parts = parts_of(proof);
  if (!parts || mine.empty()) return std::nullopt;
  auto [mac, header] = *parts;
  for (std::size_t i = 0; i < secrets_.size(); ++i) {
    Challenges challenges(secrets_[i], of_client_, mine);
    if (!is_same(mac, challenges.client_proof(header))) continue;
    SealedStream stream = challenges.server_stream();
    if (!stream.set_peer_header(header)) return std::nullopt;
    std::string answer = challenges.server_proof(stream.header()) + stream.header();
    return Proved{std::move(answer), std::move(stream), i};
  }
  return std::nullopt;
}

}  // namespace ddprun::store
