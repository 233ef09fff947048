// SPDX-License-Identifier: BSD-3-Clause
#include "store/auth/handshake.h"

#include <sodium.h>

#include <utility>

#include "store/auth/sodium.h"

namespace ddprun::store {
namespace {

static_assert(sizeof(Secret::Key) == crypto_auth_BYTES);

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

bool is_same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

Challenges::Challenges(const Secret& secret, std::string of_client, std::string of_server)
    : secret_(secret.key()), challenges_(std::move(of_client) + of_server) {}

// Each purpose begins with its length: no two are the beginning of the same bytes.
Secret::Key Challenges::mac(std::string_view purpose, std::string_view header) const {
  std::string text = "ddprun handshake 1 ";
  text += static_cast<char>(purpose.size());
  text += purpose;
  text += challenges_;
  text += header;
  Secret::Key result;
  ::crypto_auth(result.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                secret_.data());
  return result;
}

std::string Challenges::proof(std::string_view end, std::string_view header) const {
  Secret::Key key = mac(end, header);
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

SealedStream Challenges::client_stream() const {
  return {mac("client to server"), mac("server to client")};
}

SealedStream Challenges::server_stream() const {
  return {mac("server to client"), mac("client to server")};
}

ClientHandshake::ClientHandshake() : challenge_(random_challenge()) {}

std::optional<std::string> ClientHandshake::prove(const Secret& secret,
                                                  std::string_view of_server) {
  if (of_server.size() != kChallengeBytes || challenges_) return std::nullopt;
  challenges_.emplace(secret, challenge_, std::string(of_server));
  stream_ = challenges_->client_stream();
  return challenges_->client_proof(stream_->header()) + stream_->header();
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
