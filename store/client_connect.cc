// SPDX-License-Identifier: BSD-3-Clause
#include "store/client_connect.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <tuple>

#include "store/auth/handshake.h"
#include "store/base/fd.h"
#include "store/base/seconds.h"
#include "store/client.h"
#include "store/clock.h"
#include "store/greeting.h"
#include "store/http.h"
#include "store/resolver.h"
#include "store/socket.h"

namespace ddprun::store {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using namespace asio::experimental::awaitable_operators;

namespace {

constexpr Duration kLongestPause = std::chrono::seconds(2);

// An address that swallows what it is sent must not use up the time of the others.
constexpr Duration kAddressTimeout = std::chrono::seconds(5);

// When other sockets are tried beside the first one, and how many.
constexpr Duration kNextSyn = std::chrono::milliseconds(250);
constexpr int kMoreSyns = 3;

// A server without our extensions closes a connection that asks for them.  So does one that renews
// its common namespace at that moment, which is why one such closing is not believed.
constexpr int kProbes = 2;

// For the head of an HTTP response.
constexpr Duration kHttpPatience = std::chrono::milliseconds(500);
constexpr std::size_t kMaxHeadBytes = 8 * 1024;

// Of a stranger's answer, so much is shown.
constexpr std::size_t kShownBytes = 64;

// Its first line: what is no printable ASCII as "\x00", and cut short.
std::string shown_answer(std::string_view bytes) {
  std::string text;
  for (unsigned char c : bytes.substr(0, kShownBytes)) {
    bool is_end_of_line = (c == '\r' || c == '\n') && !text.empty();
    if (is_end_of_line) return text;
    if (c >= 0x20 && c < 0x7f) {
      text += static_cast<char>(c);
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      text += {'\\', 'x', kDigits[c / 16], kDigits[c % 16]};
    }
  }
  return bytes.size() > kShownBytes ? text + "..." : text;
}

// Whether trying again is of no use.
bool is_final(const Error& error) {
  return error.code == Errc::Protocol || error.code == Errc::LimitExceeded;
}

// By the peer, be it that there was something unread or not.
bool is_closed(const Error& error) {
  return error.code == Errc::Closed || error.code == std::errc::connection_reset ||
         error.code == std::errc::broken_pipe;
}

Async<std::vector<tcp::endpoint>> look_up(asio::any_io_executor executor, Endpoint endpoint,
                                          Resolver* resolver, MonoTime deadline) {
  if (resolver != nullptr) co_return co_await resolver->resolve(std::move(endpoint), deadline);
  co_return co_await resolve(std::move(executor), std::move(endpoint), deadline);
}

// What came before an error or the end stays in `head`.
asio::awaitable<void> ask_for_a_page(tcp::socket& socket, std::string& head) {
  std::string request = "GET / HTTP/1.0\r\n\r\n";
  co_await asio::async_write(socket, asio::buffer(request), asio::as_tuple(asio::use_awaitable));
  co_await asio::async_read_until(socket, asio::dynamic_buffer(head, kMaxHeadBytes), "\r\n\r\n",
                                  asio::as_tuple(asio::use_awaitable));
}

// `peer` has refused this client's proof, or has shown none.
Error unproved(const std::string& peer, bool has_refused, bool is_by_munge) {
  if (is_by_munge) {
    return {Errc::Protocol, peer +
                                " has sent a MUNGE credential that is not its own: it does not "
                                "know the secret that it holds"};
  }
  return {Errc::Protocol, peer + (has_refused ? " has another secret than this node"
                                              : " does not know this node's secret")};
}

// Outlives the sockets that run in it.
struct Race {
  asio::any_io_executor executor;
  tcp::endpoint address;
  MonoTime deadline;
  std::string what;
};

Result<tcp::socket> new_socket(const Race& race) {
  Fd fd(::socket(race.address.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return system_error(errno, race.what);
  tcp::socket socket(race.executor, race.address.protocol(), fd.release());
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  return socket;
}

Async<tcp::socket> race_later(const Race& race, int more);

// One of the sockets that ask for the same connection.  The kernel repeats a lost SYN after a
// second, which a node whose link was away for a moment may not have: `more` other sockets are
// tried beside `socket`, one after the other.
Async<tcp::socket> race_with(const Race& race, tcp::socket socket, int more) {
  auto outcome =
      co_await (socket.async_connect(race.address, asio::as_tuple(asio::use_awaitable)) ||
                race_later(race, more));
  if (outcome.index() == 1) co_return std::get<1>(std::move(outcome));
  error_code error = std::get<0>(std::get<0>(outcome));
  if (error) co_return Error{error, race.what};
  co_return socket;
}

Async<tcp::socket> race_later(const Race& race, int more) {
  asio::steady_timer timer(race.executor);
  if (more > 0) {
    timer.expires_at(std::min(race.deadline, mono_now() + kNextSyn));
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    // Where no further one can be had, those under way may still succeed.
    auto socket = new_socket(race);
    if (socket) {
      auto raced = co_await race_with(race, std::move(*socket), more - 1);
      // What the peer says holds for all; what this machine lacks, for this one.
      if (raced || raced.error().code == std::errc::connection_refused) co_return raced;
    }
  }
  timer.expires_at(race.deadline);
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return Error{Errc::TimedOut, race.what + ": no answer"};
}

// Of the time that is left each address has its part: one that does not answer leaves some to the
// others, however short it is.
MonoTime part_of_time(MonoTime deadline, int addresses_left) {
  const MonoTime now = mono_now();
  if (addresses_left <= 1 || deadline <= now) return deadline;
  return now + (deadline - now) / addresses_left;
}

}  // namespace

Async<std::unique_ptr<Client>> Client::connect(asio::any_io_executor executor, Endpoint endpoint,
                                               ClientConfig config) {
  MonoTime begin = mono_now();
  MonoTime deadline = begin + config.connect_timeout;
  ConnectPause pause;
  for (std::size_t tries = 1;; ++tries) {
    std::string answers;
    std::optional<Error> refusal;
    bool is_refused = false;  // by each of the addresses
    auto addresses = co_await look_up(executor, endpoint, config.resolver, deadline);
    if (!addresses) answers = to_string(addresses.error());
    for (std::size_t i = 0; addresses && i < addresses->size(); ++i) {
      const asio::ip::tcp::endpoint& address = (*addresses)[i];
      const auto left = static_cast<int>(addresses->size() - i);
      auto client = co_await connect_once(executor, address, name_of(endpoint, address), config,
                                          part_of_time(deadline, left));
      if (client) {
        if (config.resolver != nullptr) config.resolver->note(endpoint, true);
        co_return client;
      }
      answers += (answers.empty() ? "" : "; ") + to_string(client.error());
      if (is_final(client.error()) && !refusal) refusal = client.error();
      bool refused_here = client.error().code == std::errc::connection_refused;
      is_refused = refused_here && (i == 0 || is_refused);
    }
    if (addresses && config.resolver != nullptr) config.resolver->note(endpoint, false);
    if (refusal) co_return *refusal;
    if (config.tries_once) co_return Error{is_refused ? Errc::Refused : Errc::Closed, answers};
    Duration next = pause.next();
    MonoTime now = mono_now();
    if (now + next >= deadline) {
      co_return Error{Errc::TimedOut, "connect to " + to_string(endpoint) + ": gave up after " +
                                          milliseconds_text(now - begin) + " and " +
                                          std::to_string(tries) +
                                          (tries == 1 ? " try: " : " tries: ") + answers};
    }
    asio::steady_timer timer(executor, now + next);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

Async<std::unique_ptr<Client>> Client::connect_once(asio::any_io_executor executor,
                                                    asio::ip::tcp::endpoint address,
                                                    std::string peer, ClientConfig config,
                                                    MonoTime deadline) {
  for (int probes_left = config.probes_extensions ? kProbes : 0;; --probes_left) {
    auto socket = co_await connect_to(executor, address, deadline);
    if (!socket) co_return socket.error();
    bound_silence(socket->native_handle(), config.silence_limit);
    std::unique_ptr<Client> client(new Client(std::move(*socket), peer, config));
    auto greeted = co_await client->greet(deadline);
    if (!greeted) co_return greeted.error();
    std::optional<ClientHandshake> handshake;
    if (config.secret != nullptr || config.munge != nullptr) handshake.emplace();
    // It may have had to make room for others, so this is not the end.
    if (probes_left == 0 && handshake)
      co_return Error{Errc::Closed, client->no_secret_there().context +
                                        ", or has no room: it closed the connection " +
                                        std::to_string(kProbes) + " times"};
    if (probes_left == 0) co_return client;
    auto probed = co_await client->probe(handshake ? &*handshake : nullptr, deadline);
    if (probed && handshake) {
      auto authenticated = co_await client->authenticate(&*handshake, deadline);
      if (!authenticated) co_return authenticated.error();
    }
    if (probed) {
      auto entered = co_await client->enter_space(deadline);
      if (!entered) co_return entered.error();
      co_return client;
    }
    if (probed.error().code == Errc::TimedOut) co_return probed.error();
  }
}

Async<std::unique_ptr<Client>> Client::adopt(asio::any_io_executor executor, Fd fd,
                                             std::string peer, ClientConfig config) {
  MonoTime deadline = mono_now() + config.connect_timeout;
  // Asio asks nothing of the protocol that it is told here.
  tcp::socket socket(executor, tcp::v4(), fd.release());
  std::unique_ptr<Client> client(new Client(std::move(socket), std::move(peer), config));
  auto greeted = co_await client->greet(deadline);
  if (!greeted) co_return greeted.error();
  auto probed = co_await client->probe(nullptr, deadline);
  if (!probed) co_return probed.error();
  auto entered = co_await client->enter_space(deadline);
  if (!entered) co_return entered.error();
  co_return client;
}

// The handshake, and a PING that shows whether the peer knows the protocol.
Async<void> Client::greet(MonoTime deadline) {
  what_ = "shake hands";
  auto sent = co_await send(request::Validate{});
  if (sent) sent = co_await send(request::Ping{kOwnGreeting});
  if (!sent) co_return is_closed(sent.error()) ? turned_away() : sent.error();
  MonoTime patience = mono_now() + config_.greeting_timeout;
  Result<std::string> echo = co_await read(sizeof kOwnGreeting, std::min(deadline, patience));
  bool is_mute = !echo && echo.error().code == Errc::TimedOut && patience < deadline;
  // Most HTTP servers go on waiting for the end of a line.
  bool said_nothing = !echo && echo.error().code == Errc::TimedOut && input_.empty();
  if (said_nothing) {
    error_code unconnected;
    tcp::endpoint address = socket_.remote_endpoint(unconnected);
    bool is_http = co_await speaks_http(socket_.get_executor(), address);
    if (is_http) co_return stranger("it speaks HTTP");
  }
  bool is_other =
      echo ? std::memcmp(echo->data(), &kOwnGreeting, sizeof kOwnGreeting) != 0 : !input_.empty();
  if (is_other) co_return stranger("it answered '" + shown_answer(input_) + "'");
  if (is_mute)
    co_return stranger("no answer came for " + milliseconds_text(config_.greeting_timeout));
  if (!echo) co_return is_closed(echo.error()) ? turned_away() : echo.error();
  co_return finished(sent);
}

// A server says nothing to one that it does not let in.
Error Client::turned_away() const {
  return {Errc::Closed, peer_ +
                            " closed the connection at once: it may not allow this node's address "
                            "(--allow), be full, or be about to end"};
}

Error Client::stranger(std::string answer) const {
  return {Errc::Protocol, peer_ + " is taken by something that is not a TCPStore: " + answer};
}

// Whether the server has our extensions.  One that has not closes the connection.  A handshake
// begins in the same breath.
Async<bool> Client::probe(const ClientHandshake* handshake, MonoTime deadline) {
  what_ = "ask for extensions";
  std::string bytes;
  encode(request::Probe{}, bytes);
  if (handshake != nullptr) encode(request::Authenticate{handshake->challenge()}, bytes);
  auto sent = co_await send_bytes(std::move(bytes));
  if (!sent) co_return sent.error();
  std::uint32_t extensions = 0;
  Result<std::string> answer =
      co_await read(sizeof extensions, std::min(deadline, reply_deadline()));
  if (!answer) co_return answer.error();
  std::memcpy(&extensions, answer->data(), sizeof extensions);
  constexpr std::uint32_t kNeeded = kHasLastWill | kHasQueueTake | kHasNamespaces | kHasExpect;
  has_extensions_ = (extensions & kNeeded) == kNeeded;
  has_authentication_ = (extensions & kHasAuthentication) != 0;
  co_return finished(Result<bool>(has_extensions_));
}

Error Client::no_secret_there() const {
  return {Errc::Protocol,
          peer_ + (config_.secret != nullptr
                       ? " asks for no secret, and this node has one (--rdzv-secret-file or "
                         "DDPRUN_SECRET)"
                       : " does not use MUNGE, and this node does (--rdzv-auth)")};
}

// The secret by which this client is to be known, from its own or from what the server has sent.
Async<Secret> Client::shared_secret(std::string credential) {
  if (config_.secret != nullptr && !credential.empty()) {
    co_return Error{Errc::Protocol, peer_ +
                                        " uses MUNGE, and this node has a secret of its own "
                                        "(--rdzv-secret-file or DDPRUN_SECRET)"};
  }
  if (config_.secret != nullptr) co_return *config_.secret;
  if (credential.empty()) co_return secret_is_missing();
  auto secret = co_await config_.munge->open(std::move(credential));
  if (secret) co_return secret;
  co_return Error{secret.error().code, peer_ + ": " + secret.error().context};
}

Error Client::secret_is_missing() const {
  return {Errc::Protocol,
          peer_ +
              " asks for the secret of the run (--rdzv-secret-file or DDPRUN_SECRET; under "
              "Slurm MUNGE, see --rdzv-auth)"};
}

// Goes on where probe() began: each end shows the other that it knows the secret; all that follows
// is sealed.  With the proof goes the wish to enter the namespace, which enter_space() awaits.
Async<void> Client::authenticate(ClientHandshake* handshake, MonoTime deadline) {
  if (!has_extensions_ || !has_authentication_) co_return no_secret_there();
  what_ = "show that this node knows the secret";
  auto of_server = co_await read_short(deadline);
  if (!of_server) co_return of_server.error();
  if (of_server->empty()) co_return no_secret_there();
  std::string credential = of_server->substr(std::min(of_server->size(), kChallengeBytes));
  auto secret = co_await shared_secret(std::move(credential));
  if (!secret) co_return secret.error();
  auto proof = handshake->prove(*secret, of_server->substr(0, kChallengeBytes));
  if (!proof) {
    co_return stranger("it answered AUTHENTICATE with " + std::to_string(of_server->size()) +
                       " bytes");
  }
  std::string bytes;
  encode(request::Prove{*proof}, bytes);
  if (!config_.namespace_name.empty()) {
    std::string enter;
    encode(request::EnterNamespace{config_.namespace_name}, enter);
    handshake->seal(enter, bytes);
  }
  auto sent = co_await send_bytes(std::move(bytes));
  if (!sent) co_return sent;
  auto answer = co_await read_short(deadline);
  if (!answer) co_return answer.error();
  stream_ = std::move(*handshake).finish(*answer);
  if (!stream_) {
    co_return unproved(peer_, answer->empty(), config_.secret == nullptr);
  }
  // An attacker between client and server could have added what comes behind the answer.
  std::string frames = input_.substr(taken_);
  input_.resize(taken_);
  if (!stream_->open(frames, input_))
    co_return failure(Errc::Protocol, "bytes came that its own end has not sealed");
  secret_ = *secret;
  co_return finished(sent);
}

// A string of a peer that is not known yet.
Async<std::string> Client::read_short(MonoTime deadline) {
  constexpr std::int64_t kMostBytes = 1024;
  std::int64_t length = 0;
  deadline = std::min(deadline, reply_deadline());
  Result<std::string> bytes = co_await read(sizeof length, deadline);
  if (!bytes) co_return bytes.error();
  std::memcpy(&length, bytes->data(), sizeof length);
  if (length < 0 || length > kMostBytes)
    co_return failure(Errc::Protocol, "a length of " + std::to_string(length));
  co_return co_await read(static_cast<std::size_t>(length), deadline);
}

// Goes where the config wants to be, if the server has such places.
Async<void> Client::enter_space(MonoTime deadline) {
  if (!has_extensions_ || config_.namespace_name.empty()) co_return Result<void>{};
  what_ = "enter the namespace '" + std::string(config_.namespace_name) + "'";
  Result<void> sent;
  if (!stream_) sent = co_await send(request::EnterNamespace{config_.namespace_name});
  if (!sent) co_return sent;
  auto answer = co_await read_byte(std::min(deadline, reply_deadline()));
  if (!answer) co_return answer.error();
  if (*answer == kUnknownPeer) co_return secret_is_missing();
  if (*answer != kReady) {
    co_return failure(Errc::LimitExceeded, "the server has no room for another namespace");
  }
  co_return finished(sent);
}

Duration ConnectPause::next() {
  std::uniform_real_distribution<double> factor(0.75, 1.25);
  auto pause = std::chrono::duration_cast<Duration>(pause_ * factor(random_));
  pause_ = std::min(pause_ + pause_ / 2, kLongestPause);
  return pause;
}

asio::awaitable<bool> speaks_http(asio::any_io_executor executor, tcp::endpoint address) {
  MonoTime deadline = mono_now() + kHttpPatience;
  auto socket = co_await connect_to(executor, address, deadline);
  if (!socket) co_return false;
  std::string head;
  asio::steady_timer timer(executor, deadline);
  co_await (ask_for_a_page(*socket, head) || timer.async_wait(asio::as_tuple(asio::use_awaitable)));
  co_return head.starts_with("HTTP/") && head.find(kHttpServerField) == std::string::npos;
}

std::string name_of(const Endpoint& endpoint, const tcp::endpoint& address) {
  std::string numeric = address.address().to_string();
  std::string name = to_string(endpoint);
  return numeric == endpoint.host ? name : name + " (" + numeric + ")";
}

std::string numeric(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

Async<tcp::socket> connect_to(asio::any_io_executor executor, tcp::endpoint address,
                              MonoTime deadline) {
  const Race race{
      .executor = executor,
      .address = address,
      .deadline = std::min(deadline, mono_now() + kAddressTimeout),
      .what = "connect to " + to_string(Endpoint{address.address().to_string(), address.port()})};
  auto socket = new_socket(race);
  if (!socket) co_return socket.error();
  co_return co_await race_with(race, std::move(*socket), kMoreSyns);
}

}  // namespace ddprun::store
