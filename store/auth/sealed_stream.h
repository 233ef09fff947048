// SPDX-License-Identifier: BSD-3-Clause
//
// What two ends that know a secret send each other once they know each other: encrypted, and in an
// order that nobody between them can change.  Frames on the wire, each a length of 32 bits, little
// endian, and so many bytes of libsodium's secretstream (XChaCha20-Poly1305).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "store/auth/secret.h"

namespace ddprun::store {

class SealedStream {
 public:
  // The most that one frame has, before it is sealed.
  static constexpr std::size_t kFrameBytes = 16 * 1024;
  // What the other end must know before it can open a frame: header().
  static constexpr std::size_t kHeaderBytes = 24;

  // Of this end: what it seals by one key, and opens by the other once the peer's header is there.
  SealedStream(const Secret::Key& sends_by, const Secret::Key& opens_by);
  ~SealedStream();
  SealedStream(SealedStream&&) noexcept;
  SealedStream& operator=(SealedStream&&) noexcept;

  // For the peer; kHeaderBytes.
  std::string header() const;
  // What the peer's header() is.  To be called once, before open(); false where it is none.
  bool set_peer_header(std::string_view header);

  // Appends the frames of `plain`.
  void seal(std::string_view plain, std::string& frames);

  // Takes bytes as they arrived, cut anywhere, and appends to `plain` what whole frames hold.
  // False where a frame was not sealed by the peer, is damaged, repeated or out of its place: the
  // stream is lost.
  bool open(std::string_view bytes, std::string& plain);

  // Of a frame that has not arrived in full.
  std::size_t held_bytes() const { return held_.size(); }

 private:
  struct States;

  std::unique_ptr<States> states_;
  std::string held_;
};

}  // namespace ddprun::store
