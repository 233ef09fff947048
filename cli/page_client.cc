// SPDX-License-Identifier: BSD-3-Clause
#include "cli/page_client.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "store/base/fd.h"
#include "store/base/text.h"

namespace ddprun::cli {
namespace {

// A page of more is refused: something is wrong.
constexpr std::size_t kMostBytes = std::size_t{256} << 20;

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { ::freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> look_up(const Endpoint& at) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int error = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (error != 0) return Error{Errc::InvalidInput, at.host + ": " + ::gai_strerror(error)};
  return Addresses(found);
}

void limit(int fd, Duration timeout) {
  auto us = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
  timeval time{.tv_sec = us / 1'000'000, .tv_usec = us % 1'000'000};
  for (int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(fd, SOL_SOCKET, option, &time, sizeof time);
}

// To the first of its addresses that answers, and that address.
Result<Fd> connect_to(const Endpoint& at, Duration timeout, std::string& numeric) {
  Result<Addresses> addresses = look_up(at);
  if (!addresses) return addresses.error();
  int last_error = 0;
  for (const addrinfo* each = addresses->get(); each != nullptr; each = each->ai_next) {
    Fd fd(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol));
    if (!fd) {
      last_error = errno;
      continue;
    }
    limit(fd.get(), timeout);
    if (::connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0) {
      std::array<char, NI_MAXHOST> host{};
      ::getnameinfo(each->ai_addr, each->ai_addrlen, host.data(), host.size(), nullptr, 0,
                    NI_NUMERICHOST);
      numeric = to_string(Endpoint{.host = host.data(), .port = at.port});
      return fd;
    }
    last_error = errno == EINPROGRESS ? ETIMEDOUT : errno;
  }
  return system_error(last_error, "connect to " + to_string(at));
}

// A page that comes more slowly than this, in bytes per second, is waited for no longer than the
// time limit.
constexpr double kSlow = 64 * 1024;

Result<std::string> talk(int fd, const std::string& request, const Endpoint& at, Duration timeout) {
  const auto begun = std::chrono::steady_clock::now();
  std::size_t sent = 0;
  while (sent < request.size()) {
    ssize_t count = ::send(fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return system_error(errno, "ask " + to_string(at));
    sent += static_cast<std::size_t>(count);
  }
  std::string response;
  std::array<char, 64 * 1024> bytes;
  for (;;) {
    ssize_t count = ::recv(fd, bytes.data(), bytes.size(), 0);
    // Also without a handler, after SIGCONT: see signal(7) on SO_RCVTIMEO.
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) return response;
    const std::chrono::duration<double> allowed(static_cast<double>(response.size()) / kSlow);
    const bool is_late = std::chrono::steady_clock::now() - begun - timeout > allowed;
    if (count < 0 || is_late) {
      int error = count >= 0 || errno == EAGAIN ? ETIMEDOUT : errno;
      return system_error(error, "wait for the page of " + to_string(at));
    }
    response.append(bytes.data(), static_cast<std::size_t>(count));
    if (response.size() > kMostBytes)
      return Error{Errc::Protocol, to_string(at) + " sends more than a page has"};
  }
}

struct Answer {
  std::string status, body;
  std::optional<Duration> retry_after;
};

std::optional<Duration> retry_after(std::string_view head) {
  constexpr std::string_view kField = "\r\nRetry-After: ";
  std::size_t at = head.find(kField);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view text = head.substr(at + kField.size());
  int seconds = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || seconds < 0) return std::nullopt;
  return std::chrono::seconds(seconds);
}

Result<Answer> ask(const Endpoint& at, const std::string& path, const std::string& token,
                   Duration timeout, const std::string& method) {
  std::string numeric;
  Result<Fd> fd = connect_to(at, timeout, numeric);
  if (!fd) return fd.error();
  // A server takes a process of the same user for one only if it says an address.
  std::string request = method + " " + path + " HTTP/1.1\r\nHost: " + numeric + "\r\n";
  if (!token.empty()) request += "Authorization: Bearer " + token + "\r\n";
  Result<std::string> response = talk(fd->get(), request + "\r\n", at, timeout);
  if (!response) return response.error();
  std::size_t head = response->find("\r\n\r\n");
  bool is_ours = response->starts_with("HTTP/1.1 ") && head != std::string::npos &&
                 response->substr(0, head).find("\r\nServer: ddprun") != std::string::npos;
  if (!is_ours) {
    return Error{Errc::Protocol, "neither a ddprun nor a ddpd answers at " + to_string(at) +
                                     (response->empty() ? ", or it does not take connections from "
                                                          "this address"
                                                        : "")};
  }
  return Answer{.status = response->substr(9, 3),
                .body = response->substr(head + 4),
                .retry_after = retry_after(std::string_view(*response).substr(0, head))};
}

// What the server says is for a browser or curl.
std::string why_refused(const Answer& answer, bool has_token) {
  std::string said = printable(answer.body.substr(0, answer.body.find('\n')));
  bool is_for_secret = answer.status == "401" && said.find("Bearer") != std::string::npos;
  if (!is_for_secret) return said;
  return std::string("it shows this to some only: ") +
         (has_token ? "the secret given (--secret-file, $DDPRUN_SECRET) is not that of the run; "
                      "give that one"
                    : "give the secret of the run (--secret-file FILE or $DDPRUN_SECRET)") +
         ", or ask as the user who runs it, on its machine";
}

}  // namespace

Result<std::string> get_page(const Endpoint& at, const std::string& path, const std::string& token,
                             Duration timeout, const std::string& method) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    Result<Answer> answer = ask(at, path, token, timeout, method);
    if (!answer) return answer.error();
    if (answer->status == "200") return std::move(answer->body);
    Duration pause = answer->retry_after.value_or(Duration::max());
    if (pause >= deadline - std::chrono::steady_clock::now()) {
      return Error{Errc::InvalidInput, to_string(at) + " says " + answer->status + ": " +
                                           why_refused(*answer, !token.empty())};
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ddprun::cli
