// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/last_word.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "rendezvous/decide/store_keys.h"
#include "store/base/fd.h"
#include "store/clock.h"
#include "store/decide/wire.h"

namespace ddprun::rendezvous {
namespace {

constexpr useconds_t kPause = 50'000;          // between attempts; microseconds
constexpr int kAnswerSeconds = 2;              // that the store may take for one answer
constexpr std::int64_t kMaxRecord = 4 * 1024;  // bytes of a coordinator's record

std::optional<LastWord> parse(std::string_view text) {
  std::istringstream lines{std::string(text)};
  LastWord word;
  int has_extensions = 0;
  lines >> word.address >> word.port >> has_extensions;
  lines.ignore(1);
  std::getline(lines, word.message);
  if (!lines) return std::nullopt;
  word.has_extensions = has_extensions != 0;
  return word;
}

Fd connect_to(const LastWord& word) {
  sockaddr_storage address{};
  socklen_t size = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (::inet_pton(AF_INET, word.address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(word.port);
    size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, word.address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(word.port);
    size = sizeof *v6;
  } else {
    return {};
  }
  Fd fd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return {};
  timeval patience{.tv_sec = kAnswerSeconds, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  return fd;
}

bool send_all(const Fd& fd, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    ssize_t count = ::send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

bool receive(const Fd& fd, void* bytes, std::size_t size) {
  return ::recv(fd.get(), bytes, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

bool is_echoed(const Fd& fd, std::uint32_t nonce) {
  std::uint32_t echo = 0;
  return receive(fd, &echo, sizeof echo) && echo == nonce;
}

// torch's client puts this in front of every key.
std::string on_wire(std::string_view key) {
  std::string name(1, '/');
  name.append(key);
  return name;
}

// One attempt: the greeting, the question who coordinates here, and the message.
bool deliver(const Fd& fd, const LastWord& word) {
  constexpr std::uint32_t kGreeting = 1;
  constexpr std::uint32_t kEnd = 2;
  const std::string key = on_wire(keys::kCoordinator);
  const std::vector<std::string_view> waits_for(1, key);
  std::string bytes;
  store::encode(store::request::Validate{}, bytes);
  store::encode(store::request::Ping{kGreeting}, bytes);
  if (word.has_extensions) store::encode(store::request::EnterNamespace{keys::kNamespace}, bytes);
  store::encode(store::request::Wait{waits_for}, bytes);
  store::encode(store::request::Get{key}, bytes);
  if (!send_all(fd, bytes) || !is_echoed(fd, kGreeting)) return false;
  std::uint8_t entered = 0;
  std::uint8_t waited = 0;
  std::int64_t size = 0;
  if (word.has_extensions && !receive(fd, &entered, sizeof entered)) return false;
  if (!receive(fd, &waited, sizeof waited) || !receive(fd, &size, sizeof size)) return false;
  if (size < 0 || size > kMaxRecord) return false;
  std::string record(static_cast<std::size_t>(size), '\0');
  if (!receive(fd, record.data(), record.size())) return false;

  const std::string inbox = on_wire(keys::inbox(record));
  bytes.clear();
  store::encode(store::request::QueuePush{inbox, word.message}, bytes);
  store::encode(store::request::Ping{kEnd}, bytes);
  return send_all(fd, bytes) && is_echoed(fd, kEnd);
}

}  // namespace

std::string to_text(const LastWord& word) {
  std::ostringstream text;
  text << word.address << ' ' << word.port << (word.has_extensions ? " 1\n" : " 0\n")
       << word.message << '\n';
  return text.str();
}

bool deliver_last_word(std::string_view text, Duration patience) {
  std::optional<LastWord> word = parse(text);
  if (!word) return false;
  for (MonoTime end = mono_now() + patience;; ::usleep(kPause)) {
    Fd fd = connect_to(*word);
    if (fd && deliver(fd, *word)) return true;
    if (mono_now() >= end) return false;
  }
}

}  // namespace ddprun::rendezvous
