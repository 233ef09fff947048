// SPDX-License-Identifier: BSD-3-Clause
//
// A secret that all nodes of a run share, and by which they know each other.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "store/base/error.h"

namespace ddprun::store {

class Secret {
 public:
  using Key = std::array<unsigned char, 32>;

  // Shorter ones could be guessed from a recorded handshake.
  static constexpr std::size_t kMinBytes = 16;
  static constexpr std::size_t kMaxBytes = 4096;

  // Of what a user gave, without the blanks and ends of lines around it.  Fails with
  // Errc::InvalidInput where it is too short or too long; the error does not show it.
  static Result<Secret> from_text(std::string_view text);

  // Of the key itself, as key_text() wrote it.
  static Result<Secret> from_key_text(std::string_view text);

  // Of a regular file that belongs to this user or root and that nobody else may read or write; of
  // root's, the group that root gave it to may read it, as with mounted secrets of Kubernetes.
  // Fails with Errc::InvalidInput where it is another, and says so; with the system's own code
  // where it cannot be read.  `what` is how errors begin: "--rdzv-secret-file".
  static Result<Secret> from_file(const std::string& path, const std::string& what);

  static Secret random();

  // 256 random bits, as text.
  static std::string new_text();

  // 64 hexadecimal digits: for a process that speaks in this one's name.  It is as secret.
  std::string key_text() const;

  // What a reader of the pages shows: it opens them and nothing else.
  std::string page_token() const;
  bool is_page_token(std::string_view text) const;

  // Eight digits that tell it from others and show nothing of it.
  std::string mark() const;

  const Key& key() const { return key_; }

 private:
  explicit Secret(const Key& key) : key_(key) {}

  Key for_purpose(std::string_view purpose) const;

  Key key_;
};

// The whole of such a file as Secret::from_file() takes, of at most 4096 bytes, without an end of
// line at its end: another program's password.  Fails as that does, and where it is empty.
Result<std::string> password_from_file(const std::string& path, const std::string& what);

}  // namespace ddprun::store
