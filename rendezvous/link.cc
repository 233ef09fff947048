// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link.h"

#include <chrono>
#include <utility>

#include "rendezvous/decide/pulse.h"
#include "rendezvous/decide/store_keys.h"
#include "store/clock.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kPopPatience = std::chrono::minutes(10);

}  // namespace

Link::Link(asio::any_io_executor executor, Parts parts, Listener listener)
    : parts_(std::move(parts)),
      listener_(std::move(listener)),
      has_mail_(executor),
      has_sent_(executor) {}

store::Async<void> Link::set_last_will(std::string message) {
  co_return co_await parts_.sender->set_last_will(keys::inbox(parts_.record), std::move(message));
}

void Link::post(std::string message) {
  outgoing_.push_back({.message = std::move(message), .is_heartbeat = false});
  has_mail_.notify();
}

void Link::post_heartbeat(std::string message) {
  outgoing_.push_back({.message = std::move(message), .is_heartbeat = true});
  has_mail_.notify();
}

void Link::post_slices(std::string text) {
  std::string key = keys::slices(parts_.node);
  for (Unsent& waiting : outgoing_) {
    if (waiting.key != key) continue;
    waiting.message = std::move(text);
    return;
  }
  outgoing_.push_back({.message = std::move(text), .is_heartbeat = false, .key = std::move(key)});
  has_mail_.notify();
}

void Link::post_key(std::string key, std::string value) {
  values_[std::move(key)] = std::move(value);
  has_mail_.notify();
}

asio::awaitable<void> Link::send(std::shared_ptr<Link> link) {
  store::Client& client = *link->parts_.sender;
  std::string inbox = keys::inbox(link->parts_.record);
  std::string pulse_key = keys::pulse(link->parts_.record);
  std::string given_up_key = keys::given_up(link->parts_.node);
  while (link->is_open_) {
    while (!link->outgoing_.empty()) {
      Unsent next = std::move(link->outgoing_.front());
      link->outgoing_.pop_front();
      link->is_sending_ = true;
      Result<void> said;  // no conditional operator: GCC 12 ends what co_await gives in it twice
      if (next.key.empty()) {
        said = co_await client.queue_push(inbox, std::move(next.message));
      } else {
        said = co_await client.set(next.key, std::move(next.message));
      }
      if (!said) co_return link->lost(said.error());
      if (next.is_heartbeat) {
        // That the coordinator lives does not say that this node still counts.
        auto seen = co_await client.get_and_check(pulse_key, given_up_key, kMaxMessageBytes);
        if (!seen) co_return link->lost(seen.error());
        if (!link->is_open_) co_return;
        if (seen->value.empty())
          co_return link->lost(Error{Errc::Protocol, "its coordinator has no pulse"});
        if (seen->is_flagged) {
          link->listener_.heard(command::Dropped{"it was silent, or deaf, for too long"});
        } else {
          link->listener_.pulse_seen(pulse_for(link->parts_.run, seen->value));
        }
      }
      link->is_sending_ = false;
    }
    if (!link->is_open_) co_return;
    if (!link->values_.empty()) {
      auto next = link->values_.extract(link->values_.begin());
      auto set = co_await client.set(next.key(), std::move(next.mapped()));
      if (!set) co_return link->lost(set.error());
      continue;  // a message may have come meanwhile
    }
    link->has_sent_.notify();
    co_await link->has_mail_.wait();
  }
}

asio::awaitable<void> Link::receive(std::shared_ptr<Link> link) {
  std::string mailbox = keys::mailbox(link->parts_.node, link->parts_.connection);
  while (link->is_open_) {
    auto text = co_await link->parts_.receiver->queue_pop(mailbox, kPopPatience, kMaxCommandBytes);
    if (!link->is_open_) co_return;
    if (!text) {
      if (text.error().code == Errc::TimedOut) continue;
      co_return link->lost(text.error());
    }
    auto command = decode_command(*text);
    // It has reached this node all the same, and is counted.
    if (!command)
      command = Command(
          command::Info{"ignored a command of the rendezvous: " + to_string(command.error())});
    link->listener_.heard(std::move(*command));
  }
}

void Link::lost(const Error& error) {
  is_sending_ = false;
  has_sent_.notify();
  if (is_open_) listener_.lost(error);
}

asio::awaitable<void> Link::flush(std::shared_ptr<Link> link, MonoTime deadline) {
  auto has_more = [&link] { return link->is_sending_ || !link->outgoing_.empty(); };
  while (link->is_open_ && has_more() && mono_now() < deadline)
    co_await link->has_sent_.wait_until(deadline);
}

void Link::close() {
  is_open_ = false;
  parts_.sender->close();
  parts_.receiver->close();
  has_mail_.notify();
  has_sent_.notify();
}

}  // namespace ddprun::rendezvous
