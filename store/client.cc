// SPDX-License-Identifier: BSD-3-Clause
#include "store/client.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <limits>
#include <tuple>

#include "store/base/seconds.h"
#include "store/client_connect.h"
#include "store/clock.h"

namespace ddprun::store {
namespace asio = boost::asio;
using boost::system::error_code;
using namespace asio::experimental::awaitable_operators;

namespace {

constexpr std::size_t kReadBytes = 16 * 1024;

// torch's client puts this in front of every key.
std::string on_wire(const std::string& key) {
  return "/" + key;
}

std::vector<std::string> on_wire(std::vector<std::string> keys) {
  for (std::string& key : keys) key.insert(0, 1, '/');
  return keys;
}

// Not a braced list: GCC 12 stumbles over one inside co_await.
std::vector<std::string> one(const std::string& name) {
  return std::vector<std::string>(1, name);
}

std::vector<std::string_view> views(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

std::string quoted(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
    text += (i > 0 ? ", '" : "'") + names[i] + "'";
  }
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text;
}

}  // namespace

// A call's exclusive use of the connection.  A call that ends out of step with the server, because
// it failed or was cancelled, takes the connection with it.
class Client::ConnectionLock {
 public:
  explicit ConnectionLock(Client& client) : client_(client) { client_.is_busy_ = true; }
  ~ConnectionLock() {
    if (!client_.is_in_step_) client_.close();
    client_.is_busy_ = false;
    client_.freed_.notify();
  }
  ConnectionLock(const ConnectionLock&) = delete;
  ConnectionLock& operator=(const ConnectionLock&) = delete;

 private:
  Client& client_;
};

Client::Client(asio::ip::tcp::socket socket, std::string peer, ClientConfig config)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      config_(config),
      freed_(socket_.get_executor()) {
  error_code ignored;
  local_address_ = numeric(socket_.local_endpoint(ignored).address());
}

asio::ip::tcp::endpoint Client::remote() const {
  error_code none;
  return socket_.remote_endpoint(none);
}

void Client::close() {
  error_code ignored;
  socket_.close(ignored);
}

Async<void> Client::set(std::string key, std::string value) {
  std::string name = on_wire(key);
  co_return co_await tell("set '" + key + "'", request::Set{name, value});
}

Async<std::string> Client::compare_set(std::string key, std::string expected, std::string desired,
                                       std::size_t max_bytes) {
  std::string name = on_wire(key);
  auto lock = co_await lock_for("compare_set '" + key + "'");
  auto sent = co_await send(request::CompareSet{name, expected, desired});
  if (!sent) co_return sent.error();
  co_return finished(co_await read_bytes(max_bytes));
}

Async<std::string> Client::get(std::string key, Duration timeout, std::size_t max_bytes) {
  std::string name = on_wire(key);
  auto lock = co_await lock_for("get '" + key + "'");
  auto waited = co_await wait_for(one(name), timeout);
  if (!waited) co_return waited.error();
  auto sent = co_await send(request::Get{name});
  if (!sent) co_return sent.error();
  co_return finished(co_await read_bytes(max_bytes));
}

Async<std::int64_t> Client::add(std::string key, std::int64_t delta) {
  std::string name = on_wire(key);
  co_return co_await ask_number("add to '" + key + "'", request::Add{name, delta});
}

Async<bool> Client::check(std::vector<std::string> keys) {
  auto lock = co_await lock_for("check " + quoted(keys));
  std::vector<std::string> names = on_wire(std::move(keys));
  std::vector<std::string_view> spans = views(names);
  auto sent = co_await send(request::Check{spans});
  if (!sent) co_return sent.error();
  auto answer = co_await read_byte(reply_deadline());
  if (!answer) co_return answer.error();
  co_return finished(Result<bool>(*answer == kReady));
}

Async<Client::Flagged> Client::get_and_check(std::string key, std::string flag,
                                             std::size_t max_bytes) {
  std::string name = on_wire(key);
  std::string flag_name = on_wire(flag);
  auto lock = co_await lock_for("get '" + key + "' and check '" + flag + "'");
  std::vector<std::string_view> checked(1, flag_name);
  std::string requests;
  encode(request::Get{name}, requests);
  encode(request::Check{checked}, requests);
  auto sent = co_await seal_and_send(std::move(requests));
  if (!sent) co_return sent.error();

  auto value = co_await read_bytes(max_bytes);
  if (!value) co_return value.error();
  auto is_there = co_await read_byte(reply_deadline());
  if (!is_there) co_return is_there.error();
  co_return finished(Result<Flagged>({std::move(*value), *is_there == kReady}));
}

Async<void> Client::wait(std::vector<std::string> keys, Duration timeout) {
  auto lock = co_await lock_for("wait for " + quoted(keys));
  co_return co_await wait_for(on_wire(std::move(keys)), timeout);
}

Async<std::int64_t> Client::num_keys() {
  return ask_number("ask for the number of keys", request::GetNumKeys{});
}

Async<bool> Client::delete_key(std::string key) {
  std::string name = on_wire(key);
  auto count = co_await ask_number("delete '" + key + "'", request::DeleteKey{name});
  if (!count) co_return count.error();
  co_return *count == 1;
}

Async<void> Client::append(std::string key, std::string piece) {
  std::string name = on_wire(key);
  co_return co_await tell("append to '" + key + "'", request::Append{name, piece});
}

Async<std::vector<std::string>> Client::multi_get(std::vector<std::string> keys, Duration timeout) {
  auto lock = co_await lock_for("multi_get " + quoted(keys));
  std::vector<std::string> names = on_wire(std::move(keys));
  auto waited = co_await wait_for(names, timeout);
  if (!waited) co_return waited.error();
  std::vector<std::string_view> spans = views(names);
  auto sent = co_await send(request::MultiGet{spans});
  if (!sent) co_return sent.error();
  std::vector<std::string> values;
  while (values.size() < names.size()) {
    auto value = co_await read_bytes(kMaxAnswerBytes);
    if (!value) co_return value.error();
    values.push_back(std::move(*value));
  }
  co_return finished(Result<std::vector<std::string>>(std::move(values)));
}

Async<void> Client::multi_set(std::vector<std::pair<std::string, std::string>> pairs) {
  std::vector<KeyValue> spans;
  for (auto& [key, value] : pairs) {
    key.insert(0, 1, '/');
    spans.push_back({key, value});
  }
  co_return co_await tell("multi_set of " + std::to_string(pairs.size()) + " keys",
                          request::MultiSet{spans});
}

Async<void> Client::queue_push(std::string queue, std::string item) {
  std::string name = on_wire(queue);
  co_return co_await tell("push to '" + queue + "'", request::QueuePush{name, item});
}

Async<void> Client::queue_push_all(std::vector<Pushed> all) {
  auto lock = co_await lock_for("push to " + std::to_string(all.size()) + " queues");
  std::string requests;
  for (Pushed& one : all) {
    one.queue = on_wire(std::move(one.queue));
    encode(request::QueuePush{one.queue, one.item}, requests);
  }
  co_return finished(co_await seal_and_send(std::move(requests)));
}

Async<std::string> Client::queue_pop(std::string queue, Duration timeout, std::size_t max_bytes) {
  std::string name = on_wire(queue);
  MonoTime deadline = mono_now() + timeout;
  auto lock = co_await lock_for("pop from '" + queue + "'");
  if (has_extensions_) {
    auto taken = co_await take(name, timeout, max_bytes);
    if (!taken) co_return taken.error();
    co_return std::move(taken->item);
  }
  // A second round is for torch's server, which may wake two clients for one item.
  for (Duration left = timeout;; left = deadline - mono_now()) {
    auto waited = co_await wait_for(one(name), std::max(left, Duration::zero()));
    if (!waited) co_return waited.error();
    auto item = co_await pop(name, max_bytes);
    if (!item) co_return item.error();
    if (*item) co_return std::move(**item);
  }
}

Async<std::vector<std::string>> Client::queue_pop_some(std::string queue, Duration timeout,
                                                       std::size_t most, std::size_t max_bytes) {
  std::vector<std::string> items;
  if (!has_extensions_) {
    auto item = co_await queue_pop(std::move(queue), timeout, max_bytes);
    if (!item) co_return item.error();
    items.push_back(std::move(*item));
    co_return items;
  }
  auto lock = co_await lock_for("pop from '" + queue + "'");
  std::string name = on_wire(std::move(queue));
  auto first = co_await take(name, timeout, max_bytes);
  if (!first) co_return first.error();
  items.push_back(std::move(first->item));
  std::size_t more = std::min(first->left, most - 1);
  if (more == 0) co_return items;

  std::string requests;
  for (std::size_t i = 0; i < more; ++i) encode(request::QueuePop{name}, requests);
  auto sent = co_await seal_and_send(std::move(requests));
  if (!sent) co_return sent.error();
  for (; more > 0; --more) {
    auto item = co_await popped(max_bytes);
    if (!item) co_return item.error();
    if (*item) items.push_back(std::move(**item));
  }
  is_in_step_ = true;
  co_return items;
}

// A blocking pop in one request; the server keeps the time.
Async<Client::Taken> Client::take(std::string name, Duration timeout, std::size_t max_bytes) {
  auto ms = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  auto sent = co_await send(request::QueueTake{name, ms});
  if (!sent) co_return sent.error();
  auto length = co_await read_number(timeout);
  if (!length) co_return length.error();
  if (*length > 0) {
    auto item = co_await read_bytes(max_bytes);
    if (!item) co_return item.error();
    co_return finished(Result<Taken>({std::move(*item), static_cast<std::size_t>(*length - 1)}));
  }
  is_in_step_ = true;
  co_return failure(Errc::TimedOut, "timed out after " + milliseconds_text(timeout));
}

Async<std::optional<std::string>> Client::queue_try_pop(std::string queue) {
  auto lock = co_await lock_for("pop from '" + queue + "'");
  co_return co_await pop(on_wire(queue), kMaxAnswerBytes);
}

Async<std::int64_t> Client::queue_len(std::string queue) {
  std::string name = on_wire(queue);
  co_return co_await ask_number("ask for the length of '" + queue + "'", request::QueueLen{name});
}

Async<void> Client::discard(std::vector<Discarded> all) {
  auto lock = co_await lock_for("discard " + std::to_string(all.size()) + " queues");
  std::string requests;
  std::size_t key_count = 0;
  for (Discarded& one : all) {
    one.queue = on_wire(std::move(one.queue));
    encode(request::QueuePop{one.queue}, requests);
  }
  for (Discarded& one : all) {
    one.keys = on_wire(std::move(one.keys));
    for (const std::string& key : one.keys) encode(request::DeleteKey{key}, requests);
    key_count += one.keys.size();
  }
  auto sent = co_await seal_and_send(std::move(requests));
  if (!sent) co_return sent.error();

  std::vector<std::string> longer;
  for (Discarded& one : all) {
    auto item = co_await popped(kMaxAnswerBytes);
    if (!item) co_return item.error();
    if (*item) longer.push_back(std::move(one.queue));
  }
  for (; key_count > 0; --key_count) {
    auto deleted = co_await read_number();
    if (!deleted) co_return deleted.error();
  }
  while (!longer.empty()) {
    auto item = co_await pop(longer.back(), kMaxAnswerBytes);
    if (!item) co_return item.error();
    if (!*item) longer.pop_back();
  }
  is_in_step_ = true;
  co_return Result<void>{};
}

Async<std::vector<std::string>> Client::list_keys() {
  auto lock = co_await lock_for("list the keys");
  auto sent = co_await send(request::ListKeys{});
  if (!sent) co_return sent.error();
  auto count = co_await read_number();
  if (!count) co_return count.error();
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < *count; ++i) {
    auto name = co_await read_bytes(kMaxAnswerBytes);
    if (!name) co_return name.error();
    if (name->starts_with('/')) keys.push_back(name->substr(1));
  }
  co_return finished(Result<std::vector<std::string>>(std::move(keys)));
}

Async<void> Client::barrier(std::string key, std::int64_t world_size, Duration timeout) {
  std::string name = on_wire(key);
  auto lock = co_await lock_for("barrier '" + key + "'");
  auto sent = co_await send(request::Barrier{name, world_size});
  if (!sent) co_return sent.error();
  co_return co_await finish_wait(timeout);
}

Async<void> Client::set_last_will(std::string queue, std::string item) {
  std::string name = on_wire(queue);
  co_return co_await confirm("leave a last will for '" + queue + "'",
                             request::LastWill{name, item});
}

Async<void> Client::clear_last_will() {
  return confirm("clear the last will", request::ClearLastWill{});
}

Async<void> Client::expect(std::string name, std::uint32_t pid) {
  co_return co_await confirm("announce '" + name + "'", request::Expect{name, pid});
}

Async<void> Client::expect_world(std::int64_t size) {
  co_return co_await confirm("announce the world", request::Expect{"", size});
}

// A call of an extension that is answered by one byte.
Async<void> Client::confirm(std::string what, Request request) {
  auto lock = co_await lock_for(std::move(what));
  if (!has_extensions_) co_return failure(Errc::NotSupported, "the server has no extensions");
  auto sent = co_await send(request);
  if (!sent) co_return sent.error();
  auto answer = co_await read_byte(reply_deadline());
  if (!answer) co_return answer.error();
  co_return finished(sent);
}

asio::awaitable<std::unique_ptr<Client::ConnectionLock>> Client::lock_for(std::string what) {
  while (is_busy_) co_await freed_.wait();
  what_ = std::move(what);
  co_return std::make_unique<ConnectionLock>(*this);
}

// A call without an answer.
Async<void> Client::tell(std::string what, Request request) {
  auto lock = co_await lock_for(std::move(what));
  co_return finished(co_await send(request));
}

Async<std::int64_t> Client::ask_number(std::string what, Request request) {
  auto lock = co_await lock_for(std::move(what));
  auto sent = co_await send(request);
  if (!sent) co_return sent.error();
  co_return finished(co_await read_number());
}

Async<void> Client::wait_for(std::vector<std::string> names, Duration timeout) {
  std::vector<std::string_view> spans = views(names);
  auto sent = co_await send(request::Wait{spans});
  if (!sent) co_return sent.error();
  co_return co_await finish_wait(timeout);
}

// Awaits the end of a WAIT or BARRIER, and takes it back when the time is up.  The server may have
// ended it at that very moment: then a 0 comes before the acknowledgement.
Async<void> Client::finish_wait(Duration timeout) {
  auto ended = co_await read_byte(mono_now() + timeout);
  bool is_late = !ended && ended.error().code == Errc::TimedOut;
  if (is_late) {
    auto sent = co_await send(request::CancelWait{});
    if (!sent) co_return sent.error();
    MonoTime deadline = reply_deadline();
    Result<std::uint8_t> cancelled = co_await read_byte(deadline);
    bool came_after_all = cancelled && *cancelled == kStopWaiting;
    if (came_after_all) cancelled = co_await read_byte(deadline);
    if (!cancelled) co_return cancelled.error();
    if (*cancelled != kWaitCancelled)
      co_return failure(Errc::Protocol, "a cancelled wait was not acknowledged");
    is_in_step_ = true;
    if (came_after_all) co_return Result<void>{};
    co_return failure(Errc::TimedOut, "timed out after " + milliseconds_text(timeout));
  }
  if (!ended) co_return ended.error();
  if (*ended != kStopWaiting)
    co_return failure(Errc::Protocol, "a wait ended with " + std::to_string(*ended));
  is_in_step_ = true;
  co_return Result<void>{};
}

Async<std::optional<std::string>> Client::pop(std::string name, std::size_t max_bytes) {
  auto sent = co_await send(request::QueuePop{name});
  if (!sent) co_return sent.error();
  co_return finished(co_await popped(max_bytes));
}

// The answer to a QUEUE_POP.
Async<std::optional<std::string>> Client::popped(std::size_t max_bytes) {
  auto length = co_await read_number();
  if (!length) co_return length.error();
  if (*length <= 0) co_return std::optional<std::string>();
  auto item = co_await read_bytes(max_bytes);
  if (!item) co_return item.error();
  co_return std::optional<std::string>(std::move(*item));
}

Async<void> Client::send(Request request) {
  std::string bytes;
  encode(request, bytes);
  return seal_and_send(std::move(bytes));
}

Async<void> Client::seal_and_send(std::string requests) {
  if (!stream_) return send_bytes(std::move(requests));
  std::string frames;
  stream_->seal(requests, frames);
  return send_bytes(std::move(frames));
}

Async<void> Client::send_bytes(std::string bytes) {
  is_in_step_ = false;
  if (!socket_.is_open()) co_return failure(Errc::Closed, "the connection is closed");
  asio::steady_timer timer(socket_.get_executor(), reply_deadline());
  auto outcome = co_await (
      asio::async_write(socket_, asio::buffer(bytes), asio::as_tuple(asio::use_awaitable)) ||
      timer.async_wait(asio::as_tuple(asio::use_awaitable)));
  if (outcome.index() == 1) co_return failure(Errc::TimedOut, "the server does not read");
  error_code error = std::get<0>(std::get<0>(outcome));
  if (error) co_return failure(error, "");
  co_return Result<void>{};
}

Async<std::string> Client::read(std::size_t count, MonoTime deadline) {
  while (input_.size() - taken_ < count) {
    input_.erase(0, taken_);
    taken_ = 0;
    std::size_t held = input_.size();
    input_.resize(std::max(held + kReadBytes, std::min(count, held + (std::size_t{1} << 20))));
    asio::steady_timer timer(socket_.get_executor(), deadline);
    auto outcome =
        co_await (socket_.async_read_some(asio::buffer(input_.data() + held, input_.size() - held),
                                          asio::as_tuple(asio::use_awaitable)) ||
                  timer.async_wait(asio::as_tuple(asio::use_awaitable)));
    if (outcome.index() == 1) {
      input_.resize(held);
      co_return failure(Errc::TimedOut, "the server does not answer");
    }
    auto [error, received] = std::get<0>(outcome);
    input_.resize(held + received);
    if (stream_ && received > 0) {
      std::string frames = input_.substr(held);
      input_.resize(held);
      if (!stream_->open(frames, input_))
        co_return failure(Errc::Protocol, "it sent what its own end has not sealed");
    }
    if (error == asio::error::eof)
      co_return failure(Errc::Closed, "the server closed the connection");
    if (error) co_return failure(error, "");
  }
  std::string bytes = input_.substr(taken_, count);
  taken_ += count;
  co_return bytes;
}

Async<std::uint8_t> Client::read_byte(MonoTime deadline) {
  auto bytes = co_await read(1, deadline);
  if (!bytes) co_return bytes.error();
  co_return static_cast<std::uint8_t>((*bytes)[0]);
}

Async<std::int64_t> Client::read_number(Duration patience) {
  std::int64_t number = 0;
  auto bytes = co_await read(sizeof number, reply_deadline() + patience);
  if (!bytes) co_return bytes.error();
  std::memcpy(&number, bytes->data(), sizeof number);
  co_return number;
}

Async<std::string> Client::read_bytes(std::size_t max_bytes) {
  auto length = co_await read_number();
  if (!length) co_return length.error();
  if (*length < 0) co_return failure(Errc::Protocol, "a length of " + std::to_string(*length));
  auto count = static_cast<std::size_t>(*length);
  if (count > max_bytes) {
    co_return failure(Errc::Protocol, "it announced " + std::to_string(count) + " bytes, and " +
                                          std::to_string(max_bytes) + " are allowed");
  }
  co_return co_await read(count, reply_deadline());
}

MonoTime Client::reply_deadline() const {
  return mono_now() + config_.reply_timeout;
}

Error Client::failure(std::error_code code, std::string reason) const {
  std::string context = what_ + " on " + peer_;
  if (!reason.empty()) context += ": " + reason;
  return {code, std::move(context)};
}

}  // namespace ddprun::store
