// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/last_word.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "rendezvous/decide/store_keys.h"
#include "rendezvous/node_files.h"
#include "store/auth/handshake.h"
#include "store/auth/munge.h"
#include "store/base/fd.h"
#include "store/clock.h"
#include "store/decide/wire.h"

namespace ddprun::rendezvous {
namespace {

// Between attempts, in microseconds: whoever hosts next may open in a moment.
constexpr useconds_t kFirstPause = 2'000;
constexpr useconds_t kLongestPause = 50'000;
constexpr int kAnswerSeconds = 2;              // that the store may take for one answer
constexpr int kOthersPatience = 3;             // times as long, where there are other places
constexpr std::int64_t kMaxRecord = 4 * 1024;  // bytes of a coordinator's record

std::optional<LastWord> parse(std::string_view text) {
  std::istringstream lines{std::string(text)};
  LastWord word;
  std::size_t others = 0;
  lines >> word.address >> word.port >> word.has_extensions >> word.uses_munge >> others;
  for (; lines && others > 0; --others) {
    Endpoint& other = word.others.emplace_back();
    lines >> other.host >> other.port;
  }
  lines.ignore(1);
  std::getline(lines, word.secret_key);
  std::getline(lines, word.munge_socket);
  std::getline(lines, word.message);
  std::getline(lines, word.keep_at);
  std::getline(lines, word.why);
  if (!lines) return std::nullopt;
  return word;
}

Fd connect_to(const Endpoint& place) {
  sockaddr_storage address{};
  socklen_t size = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (::inet_pton(AF_INET, place.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(place.port);
    size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, place.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(place.port);
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

// A connection to the store, by calls that block.  Once sealed, all is sealed.
class Conversation {
 public:
  explicit Conversation(const Fd& fd) : fd_(fd) {}

  bool send(const std::string& bytes) {
    std::string frames;
    if (stream_) stream_->seal(bytes, frames);
    const std::string& out = stream_ ? frames : bytes;
    for (std::size_t sent = 0; sent < out.size();) {
      ssize_t count = ::send(fd_.get(), out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<std::size_t>(count);
    }
    return true;
  }

  // Also a server that sends a byte now and then has to come to an end.
  bool receive(void* bytes, std::size_t size) {
    const MonoTime deadline = mono_now() + std::chrono::seconds(kAnswerSeconds);
    while (input_.size() < size) {
      if (mono_now() >= deadline) return false;
      char piece[kMaxRecord];
      ssize_t count = ::recv(fd_.get(), piece, sizeof piece, 0);
      if (count <= 0) return false;
      std::string_view arrived(piece, static_cast<std::size_t>(count));
      if (!stream_) {
        input_.append(arrived);
      } else if (!stream_->open(arrived, input_)) {
        return false;
      }
    }
    std::memcpy(bytes, input_.data(), size);
    input_.erase(0, size);
    return true;
  }

  std::optional<std::string> receive_string() {
    std::int64_t size = 0;
    if (!receive(&size, sizeof size) || size < 0 || size > kMaxRecord) return std::nullopt;
    std::string text(static_cast<std::size_t>(size), '\0');
    if (!receive(text.data(), text.size())) return std::nullopt;
    return text;
  }

  bool is_echoed(std::uint32_t nonce) {
    std::uint32_t echo = 0;
    return receive(&echo, sizeof echo) && echo == nonce;
  }

  // Each end shows the other that it knows the secret, `make(credential)` of what the server sends.
  template <class Make>
  bool seal(Make make) {
    store::ClientHandshake handshake;
    std::string bytes;
    store::encode(store::request::Authenticate{handshake.challenge()}, bytes);
    if (!send(bytes)) return false;
    std::optional<std::string> of_server = receive_string();
    if (!of_server) return false;
    if (of_server->size() < store::kChallengeBytes) return false;
    Result<store::Secret> secret = make(of_server->substr(store::kChallengeBytes));
    if (!secret) return false;
    auto proof = handshake.prove(*secret, of_server->substr(0, store::kChallengeBytes));
    if (!proof) return false;
    bytes.clear();
    store::encode(store::request::Prove{*proof}, bytes);
    if (!send(bytes)) return false;
    std::optional<std::string> answer = receive_string();
    if (!answer || !input_.empty()) return false;
    stream_ = std::move(handshake).finish(*answer);
    return stream_.has_value();
  }

 private:
  const Fd& fd_;
  std::string input_;
  std::optional<store::SealedStream> stream_;
};

Result<store::Secret> open(const std::string& credential, const std::string& munge_socket) {
  Result<store::Munge> munge = store::Munge::load(munge_socket);
  return munge ? munge->open(credential) : munge.error();
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
  Conversation store(fd);
  std::string bytes;
  store::encode(store::request::Validate{}, bytes);
  store::encode(store::request::Ping{kGreeting}, bytes);
  if (!store.send(bytes) || !store.is_echoed(kGreeting)) return false;
  bool is_sealed = word.secret_key.empty() && !word.uses_munge;
  if (!word.secret_key.empty())
    is_sealed = store.seal([&](auto) { return store::Secret::from_key_text(word.secret_key); });
  else if (word.uses_munge)
    is_sealed = store.seal([&](auto credential) { return open(credential, word.munge_socket); });
  if (!is_sealed) return false;
  bytes.clear();
  if (word.has_extensions) store::encode(store::request::EnterNamespace{keys::kNamespace}, bytes);
  store::encode(store::request::Wait{waits_for}, bytes);
  std::uint8_t entered = 0;
  std::uint8_t waited = 0;
  if (!store.send(bytes)) return false;
  if (word.has_extensions && (!store.receive(&entered, sizeof entered) || entered != store::kReady))
    return false;
  if (!store.receive(&waited, sizeof waited)) return false;
  // Not before: a store goes on with what follows a Wait, and would answer that there is no record.
  bytes.clear();
  store::encode(store::request::Get{key}, bytes);
  if (!store.send(bytes)) return false;
  std::optional<std::string> record = store.receive_string();
  if (!record || record->empty()) return false;

  const std::string inbox = on_wire(keys::inbox(*record));
  bytes.clear();
  store::encode(store::request::QueuePush{inbox, word.message}, bytes);
  store::encode(store::request::Ping{kEnd}, bytes);
  return store.send(bytes) && store.is_echoed(kEnd);
}

}  // namespace

std::string to_text(const LastWord& word) {
  std::ostringstream text;
  std::vector<Endpoint> others;
  std::ranges::copy_if(word.others, std::back_inserter(others),
                       [](const Endpoint& other) { return is_numeric_host(other.host); });
  text << word.address << ' ' << word.port << ' ' << word.has_extensions << ' ' << word.uses_munge
       << ' ' << others.size();
  for (const Endpoint& other : others) text << ' ' << other.host << ' ' << other.port;
  text << '\n'
       << word.secret_key << '\n'
       << word.munge_socket << '\n'
       << word.message << '\n'
       << word.keep_at << '\n'
       << word.why << '\n';
  return text.str();
}

bool deliver_last_word(std::string_view text, Duration patience) {
  std::optional<LastWord> word = parse(text);
  if (!word) return false;
  if (!word->keep_at.empty()) write_last_word(word->keep_at, word->why);
  const Endpoint store{.host = word->address, .port = word->port};
  std::vector<Endpoint> others = std::move(word->others);
  std::erase(others, store);
  const std::size_t count = others.size();
  auto takes = [&](const Endpoint& place) {
    Fd fd = connect_to(place);
    return fd && deliver(fd, *word);
  };
  const MonoTime end = mono_now() + (count > 0 ? kOthersPatience * patience : patience);
  for (useconds_t pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    if (takes(store)) return true;
    std::erase_if(others, takes);
    if (count > 0 && others.empty()) return true;
    if (mono_now() >= end) return others.size() < count;
    ::usleep(pause);
  }
}

}  // namespace ddprun::rendezvous
