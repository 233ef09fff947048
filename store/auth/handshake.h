// SPDX-License-Identifier: BSD-3-Clause
//
// How two ends show each other that they know a secret, without sending it: each answers the
// other's random challenge by an HMAC.  The client shows it first, so that a stranger who asks a
// server learns nothing that he could guess at.  From then on all is sealed (sealed_stream.h), so
// it is of no use to stand between the two and hand the handshake on.
//
//   client                                     server
//   AUTHENTICATE  32 random bytes         ->
//                                         <-   32 random bytes, and a credential from which some
//                                              clients make the secret (munge.h), or nothing
//   PROVE         HMAC, header of stream,
//                 first sealed requests   ->
//                                         <-   HMAC, header of stream, and what is sealed from
//                                              then on; or nothing: refused
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/auth/sealed_stream.h"
#include "store/auth/secret.h"

namespace ddprun::store {

inline constexpr std::size_t kChallengeBytes = 32;
inline constexpr std::size_t kProofBytes = 32 + SealedStream::kHeaderBytes;

// The two challenges, and what follows from them.
class Challenges {
 public:
  // `of_client` and `of_server` have kChallengeBytes.
  Challenges(const Secret& secret, std::string of_client, std::string of_server);

  // The ends of a stream between the two.
  SealedStream client_stream() const;
  SealedStream server_stream() const;

  // What shows that the client, or the server, knows the secret and that `header` is its own.
  std::string client_proof(std::string_view header) const { return proof("client", header); }
  std::string server_proof(std::string_view header) const { return proof("server", header); }

 private:
  // From a client to a server, and from a server to a client.
  struct StreamKeys {
    Secret::Key to_server, to_client;
  };
  StreamKeys stream_keys() const;
  std::string text_for(std::string_view purpose, std::string_view header = {}) const;
  std::string proof(std::string_view end, std::string_view header) const;

  Secret::Key secret_;
  std::string challenges_;
};

class ClientHandshake {
 public:
  ClientHandshake();

  // For AUTHENTICATE.
  const std::string& challenge() const { return challenge_; }

  // For PROVE, when the server has answered AUTHENTICATE by this challenge.  Nothing where it is
  // none.
  std::optional<std::string> prove(const Secret& secret, std::string_view of_server);

  // Appends to `frames` what may be sent behind the proof; to be called after prove().  Only a
  // server that knows the secret can read it.
  void seal(std::string_view requests, std::string& frames);

  // When the server has answered PROVE: the stream from then on, or nothing where the server has
  // not shown that it knows the secret.  To be called once, after prove().
  std::optional<SealedStream> finish(std::string_view answer) &&;

 private:
  std::string challenge_;
  std::optional<Challenges> challenges_;
  std::optional<SealedStream> stream_;
};

class ServerHandshake {
 public:
  // For clients that know one of the secrets.
  explicit ServerHandshake(std::vector<Secret> secrets) : secrets_(std::move(secrets)) {}

  // The answer to AUTHENTICATE.  Nothing where that is no challenge, or is the second.
  std::optional<std::string> challenge(std::string_view of_client);

  struct Proved {
    std::string answer;  // to PROVE
    SealedStream stream;
    std::size_t secret = 0;  // which of them the client knows
  };
  // Nothing where the client has not shown that it knows a secret; it has one try.
  std::optional<Proved> check(std::string_view proof);

 private:
  std::vector<Secret> secrets_;
  std::string of_client_;
  std::string mine_;  // empty: there is no challenge that may be answered
};

}  // namespace ddprun::store
