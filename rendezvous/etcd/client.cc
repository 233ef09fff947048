// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/client.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <tuple>
#include <utility>

#include "store/client_connect.h"
#include "store/clock.h"
#include "store/detached_call.h"
#include "store/event.h"

namespace ddprun::rendezvous::etcd {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kBlockBytes = 16 * 1024;
constexpr unsigned kOk = 200;

constexpr const char* kTxn = "/v3/kv/txn";
constexpr const char* kGrant = "/v3/lease/grant";
constexpr const char* kKeepAlive = "/v3/lease/keepalive";
constexpr const char* kLogIn = "/v3/auth/authenticate";

// No other member would say anything else.
bool is_final(const Error& error) {
  return error.code == Errc::InvalidInput || error.code == Errc::NotSupported;
}

Error lost(const Endpoint& member, const error_code& error) {
  return {error, to_string(member)};
}

Error at(const Endpoint& member, const Error& error) {
  return {error.code, to_string(member) + ": " + error.context};
}

// One connection to a member, with TLS or without.
class Connection {
 public:
  Connection(tcp::socket socket, Endpoint member, std::unique_ptr<TlsSession> tls)
      : socket_(std::move(socket)), member_(std::move(member)), tls_(std::move(tls)) {}

  store::Async<HttpResponse> exchange(std::string request) {
    auto sent = co_await send(std::move(request));
    if (!sent) co_return sent.error();
    HttpResponseReader reader;
    auto state = HttpResponseReader::State::NeedMore;
    while (state == HttpResponseReader::State::NeedMore) {
      std::string text;
      auto is_open = co_await receive(text);
      if (!is_open) co_return is_open.error();
      if (!text.empty()) has_answered_ = true;
      state = reader.feed(text);
      if (*is_open || state != HttpResponseReader::State::NeedMore) continue;
      if (!has_answered_) {
        co_return Error{Errc::Closed, to_string(member_) +
                                          " has closed the connection without an answer" +
                                          (tls_ ? "" : ", as an etcd that wants https does")};
      }
      state = reader.end();
    }
    if (state == HttpResponseReader::State::Malformed)
      co_return Error{Errc::Protocol,
                      to_string(member_) + " does not answer as an etcd (HTTP) does"};
    co_return reader.take();
  }

 private:
  store::Async<void> send(std::string request) {
    if (!tls_) co_return co_await write(std::move(request));
    while (true) {
      auto is_done = tls_->shake_hands();
      // What it has to say to the other side, also of a failure.
      auto written = co_await write(tls_->take());
      if (!is_done) co_return at(member_, is_done.error());
      if (!written) co_return written;
      if (*is_done) break;
      auto is_open = co_await read_block();
      if (!is_open) co_return is_open.error();
      if (!*is_open) {
        co_return Error{Errc::Closed,
                        to_string(member_) + " has closed the connection before TLS was set up"};
      }
      tls_->give(block_text());
    }
    auto sealed = tls_->seal(request);
    if (!sealed) co_return at(member_, sealed.error());
    co_return co_await write(tls_->take());
  }

  // Appends what comes next; false: it was the last.
  store::Async<bool> receive(std::string& text) {
    if (tls_) {  // what came with the end of the handshake
      auto opened = tls_->open(text);
      if (!opened) co_return at(member_, opened.error());
      if (!*opened || !text.empty()) co_return *opened;
    }
    auto is_open = co_await read_block();
    if (!is_open || !*is_open) co_return is_open;
    if (!tls_) {
      text += block_text();
      co_return true;
    }
    tls_->give(block_text());
    auto opened = tls_->open(text);
    if (!opened) co_return at(member_, opened.error());
    co_return *opened;
  }

  store::Async<void> write(std::string bytes) {
    if (bytes.empty()) co_return Result<void>{};
    auto [error, size] = co_await asio::async_write(socket_, asio::buffer(bytes), kTuple);
    if (error) co_return lost(member_, error);
    co_return Result<void>{};
  }

  store::Async<bool> read_block() {
    auto [error, size] = co_await socket_.async_read_some(asio::buffer(block_), kTuple);
    count_ = size;
    if (error == asio::error::eof) co_return false;
    if (error) co_return lost(member_, error);
    co_return true;
  }
  std::string_view block_text() const { return {block_.data(), count_}; }

  tcp::socket socket_;
  Endpoint member_;
  std::unique_ptr<TlsSession> tls_;
  bool has_answered_ = false;
  std::array<char, kBlockBytes> block_{};
  std::size_t count_ = 0;
};

}  // namespace

struct Client::Answer {
  bool lease_is_over = false;
  std::string body;
};

struct Client::Call {
  std::string target;
  std::string body;
};

Client::Client(asio::any_io_executor executor, ClientConfig config,
               std::function<void(std::string)> log)
    : executor_(executor), config_(std::move(config)), resolver_(executor, std::move(log)) {}

Client::~Client() = default;

store::Async<std::vector<KeyValue>> Client::read(std::vector<std::string> keys, MonoTime deadline) {
  auto answer = co_await call(kTxn, encode_read(keys), deadline);
  if (!answer) co_return answer.error();
  auto reply = decode_txn(answer->body);
  if (!reply) co_return reply.error();
  co_return std::move(reply->read);
}

store::Async<std::optional<TxnReply>> Client::commit(Txn txn, MonoTime deadline) {
  auto answer = co_await call(kTxn, encode_txn(txn), deadline);
  if (!answer) co_return answer.error();
  if (answer->lease_is_over) co_return std::optional<TxnReply>();
  auto reply = decode_txn(answer->body);
  if (!reply) co_return reply.error();
  co_return std::optional<TxnReply>(std::move(*reply));
}

store::Async<Lease> Client::grant(Duration ttl, MonoTime deadline) {
  auto answer = co_await call(kGrant, encode_grant(ttl), deadline);
  if (!answer) co_return answer.error();
  co_return decode_lease(answer->body);
}

store::Async<Lease> Client::keep_alive(std::int64_t lease, MonoTime deadline) {
  auto answer = co_await call(kKeepAlive, encode_lease(lease), deadline);
  if (!answer) co_return answer.error();
  if (answer->lease_is_over) co_return Lease{.id = lease, .ttl = {}};
  co_return decode_lease(answer->body);
}

// Each member once, from the one that answered last.
store::Async<Client::Answer> Client::call(std::string target, std::string body, MonoTime deadline) {
  auto call = std::make_shared<Call>();
  call->target = std::move(target);
  call->body = std::move(body);
  std::string said;
  const std::size_t count = config_.members.size();
  const std::size_t first = current_;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t number = (first + i) % count;
    const MonoTime now = mono_now();
    auto share = (deadline - now) / static_cast<Duration::rep>(count - i);
    auto answer = co_await ask(config_.members[number], call, now + share);
    if (answer) {
      current_ = number;
      co_return answer;
    }
    if (is_final(answer.error())) co_return Error{Errc::InvalidInput, to_string(answer.error())};
    said += (said.empty() ? "" : "; ") + to_string(answer.error());
  }
  tls_.reset();  // its files may have been replaced
  co_return Error{Errc::TimedOut, "no member of etcd can be used: " + said};
}

store::Async<Client::Answer> Client::ask(Endpoint member, std::shared_ptr<const Call> call,
                                         MonoTime deadline) {
  using namespace asio::experimental::awaitable_operators;
  const std::string name = to_string(member);
  asio::steady_timer timer(executor_, deadline);
  auto outcome =
      co_await (ask_once(std::move(member), std::move(call), deadline) || store::wait_for(timer));
  if (outcome.index() == 0) co_return std::get<0>(std::move(outcome));
  co_return Error{Errc::TimedOut, name + " has not answered"};
}

store::Async<Client::Answer> Client::ask_once(Endpoint member, std::shared_ptr<const Call> call,
                                              MonoTime deadline) {
  bool is_second = false;
  while (true) {
    if (!config_.user.empty() && token_.empty()) {
      auto done = co_await log_in(member, deadline);
      if (!done) co_return done.error();
    }
    const std::string token = token_;
    auto response =
        co_await post(member, http_request(member, call->target, call->body, token), deadline);
    if (!response) co_return response.error();
    Answer answer;
    if (response->status == kOk) {
      answer.body = std::move(response->body);
      co_return answer;
    }
    RefusalText refusal = read_refusal(response->status, response->body);
    if (refusal.kind == Refusal::LeaseIsOver) {
      answer.lease_is_over = true;
      co_return answer;
    }
    bool logs_in = refusal.kind == Refusal::LogInAgain && !config_.user.empty() && !is_second;
    if (!logs_in) {
      bool may_pass = refusal.kind == Refusal::TryNext ||
                      (refusal.kind == Refusal::LogInAgain && !config_.user.empty());
      bool lacks_user =
          config_.user.empty() && refusal.said.find("user name is empty") != std::string::npos;
      co_return Error{may_pass ? Errc::Closed : Errc::InvalidInput,
                      to_string(member) + ": " + refusal.said +
                          (lacks_user ? "; this etcd asks for a user (user, password_file)" : "")};
    }
    if (token_ == token) token_.clear();  // else another call has a new one
    is_second = true;
  }
}

store::Async<void> Client::log_in(Endpoint member, MonoTime deadline) {
  std::string body = encode_login(config_.user, config_.password);
  auto response = co_await post(member, http_request(member, kLogIn, body, ""), deadline);
  if (!response) co_return response.error();
  if (response->status != kOk) {
    RefusalText refusal = read_refusal(response->status, response->body);
    std::string said = to_string(member) + ": " + refusal.said;
    if (refusal.kind == Refusal::NoAuth)
      co_return Error{Errc::InvalidInput, said + "; a user was given"};
    bool may_pass = refusal.kind == Refusal::TryNext;
    co_return Error{may_pass ? Errc::Closed : Errc::InvalidInput,
                    said + ", for user '" + config_.user + "'"};
  }
  auto token = decode_token(response->body);
  if (!token) co_return at(member, token.error());
  token_ = std::move(*token);
  co_return Result<void>{};
}

// To the first address of the member that takes a connection.
store::Async<HttpResponse> Client::post(Endpoint member, std::string request, MonoTime deadline) {
  std::shared_ptr<TlsContext> context;
  if (config_.tls) {
    auto made = co_await tls_context();
    if (!made) co_return made.error();
    context = std::move(*made);
  }
  auto addresses = co_await resolver_.resolve(member, deadline);
  if (!addresses) co_return addresses.error();
  Error refused{Errc::Closed, to_string(member) + ": no address"};
  for (const tcp::endpoint& address : *addresses) {
    auto socket = co_await store::connect_to(executor_, address, deadline);
    if (!socket) {
      refused = socket.error();
      continue;
    }
    std::unique_ptr<TlsSession> tls;
    if (context) {
      auto made = TlsSession::make(context, member.host);
      if (!made) co_return made.error();
      tls = std::move(*made);
    }
    Connection connection(std::move(*socket), member, std::move(tls));
    co_return co_await connection.exchange(std::move(request));
  }
  co_return refused;
}

// Reads files, which may be on a disk that stands still.
store::Async<std::shared_ptr<TlsContext>> Client::tls_context() {
  if (tls_) co_return tls_;
  std::function<Result<std::shared_ptr<TlsContext>>()> work = [files = *config_.tls] {
    return TlsContext::make(files);
  };
  auto made = co_await store::call_detached(executor_, std::move(work));
  if (made) tls_ = *made;
  co_return made;
}

}  // namespace ddprun::rendezvous::etcd
