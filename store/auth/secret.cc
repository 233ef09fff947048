// SPDX-License-Identifier: BSD-3-Clause
#include "store/auth/secret.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "store/auth/sodium.h"
#include "store/base/fd.h"
#include "store/base/file.h"

namespace ddprun::store {
namespace {

static_assert(sizeof(Secret::Key) == crypto_auth_KEYBYTES);

constexpr std::string_view kBlanks = " \t\r\n";

std::string hexadecimal(const unsigned char* bytes, std::size_t size) {
  std::vector<char> text(2 * size + 1);
  ::sodium_bin2hex(text.data(), text.size(), bytes, size);
  return text.data();
}

Error invalid(std::string sentence) {
  return {Errc::InvalidInput, std::move(sentence)};
}

// At most one byte more than a secret may have.
Result<std::string> read_private(const std::string& path, const std::string& name) {
  // A FIFO or a device must not make this process wait.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return system_error(errno, name);
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0) return system_error(errno, name);
  if (!S_ISREG(file.st_mode)) return invalid(name + ": it is no regular file");
  if (file.st_uid != ::geteuid() && file.st_uid != 0) {
    return invalid(name + ": it belongs to user " + std::to_string(file.st_uid) +
                   "; it must belong to you or root");
  }
  const bool is_roots = file.st_uid == 0;
  const mode_t of_others = S_IRWXO | (is_roots ? S_IWGRP | S_IXGRP : S_IRWXG);
  if ((file.st_mode & of_others) != 0) {
    return invalid(name + ": other users may use it; run: chmod 600 " + path);
  }
  return read_from(fd.get(), Secret::kMaxBytes + 1, name);
}

}  // namespace

Result<Secret> Secret::from_text(std::string_view text) {
  std::size_t begin = text.find_first_not_of(kBlanks);
  text = begin == std::string_view::npos ? "" : text.substr(begin);
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  if (text.size() < kMinBytes || text.size() > kMaxBytes) {
    return invalid("a secret of " + std::to_string(text.size()) + " bytes; it must have " +
                   std::to_string(kMinBytes) + " to " + std::to_string(kMaxBytes) +
                   " (ddprun --new-secret makes one)");
  }
  init_sodium();
  constexpr std::string_view kPurpose = "ddprun secret 1";
  Key key;
  ::crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(text.data()),
                       text.size(), reinterpret_cast<const unsigned char*>(kPurpose.data()),
                       kPurpose.size());
  return Secret(key);
}

Result<Secret> Secret::from_key_text(std::string_view text) {
  Key key;
  std::size_t size = 0;
  const char* end = nullptr;
  int status =
      ::sodium_hex2bin(key.data(), key.size(), text.data(), text.size(), nullptr, &size, &end);
  if (status != 0 || size != key.size() || end != text.data() + text.size())
    return invalid("no key of a secret");
  return Secret(key);
}

Result<Secret> Secret::from_file(const std::string& path, const std::string& what) {
  const std::string name = what + "=" + path;
  Result<std::string> text = read_private(path, name);
  if (!text) return text.error();
  Result<Secret> secret = from_text(*text);
  ::sodium_memzero(text->data(), text->size());
  if (!secret) return invalid(name + ": " + secret.error().context);
  return secret;
}

Result<std::string> password_from_file(const std::string& path, const std::string& what) {
  const std::string name = what + "=" + path;
  Result<std::string> text = read_private(path, name);
  if (!text) return text;
  if (text->size() > Secret::kMaxBytes)
    return invalid(name + ": it has more than " + std::to_string(Secret::kMaxBytes) + " bytes");
  while (text->ends_with('\n') || text->ends_with('\r')) text->pop_back();
  if (text->empty()) return invalid(name + ": it is empty");
  return text;
}

Secret Secret::random() {
  init_sodium();
  Key key;
  ::randombytes_buf(key.data(), key.size());
  return Secret(key);
}

std::string Secret::new_text() {
  init_sodium();
  Key random;
  ::randombytes_buf(random.data(), random.size());
  return hexadecimal(random.data(), random.size());
}

std::string Secret::key_text() const {
  return hexadecimal(key_.data(), key_.size());
}

// Keys for different purposes say nothing about each other.
Secret::Key Secret::for_purpose(std::string_view purpose) const {
  Key key;
  ::crypto_auth(key.data(), reinterpret_cast<const unsigned char*>(purpose.data()), purpose.size(),
                key_.data());
  return key;
}

std::string Secret::page_token() const {
  Key token = for_purpose("ddprun pages 1");
  return hexadecimal(token.data(), token.size());
}

std::string Secret::mark() const {
  return hexadecimal(for_purpose("ddprun mark 1").data(), 4);
}

bool Secret::is_page_token(std::string_view text) const {
  std::string token = page_token();
  return text.size() == token.size() &&
         ::sodium_memcmp(text.data(), token.data(), token.size()) == 0;
}

}  // namespace ddprun::store
