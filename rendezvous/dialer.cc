// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/dialer.h"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "rendezvous/brief_talk.h"
#include "rendezvous/decide/store_keys.h"
#include "store/base/seconds.h"
#include "store/client_connect.h"
#include "store/clock.h"
#include "store/event.h"
#include "store/socket.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kAttempt = std::chrono::seconds(2);  // of one connect
constexpr Duration kLeastAttempt = std::chrono::milliseconds(200);
// Where the endpoint's name is that of several machines: how long each of the others is asked
// whether it hosts, how many are, and how long the first of them is waited for.
constexpr Duration kOtherAttempt = std::chrono::milliseconds(500);
constexpr std::size_t kMostOthers = 4;
constexpr Duration kOthersFirst = std::chrono::seconds(3);
constexpr Duration kLeastTimeLeft = std::chrono::milliseconds(1);

}  // namespace

Dialer::Dialer(asio::any_io_executor executor, Parts parts)
    : executor_(executor),
      parts_(std::move(parts)),
      config_(parts_.config),
      resolver_(executor, [this](std::string line) { parts_.log(line); }) {}

void Dialer::begin(Duration timeout) {
  timeout_ = timeout;
  deadline_ = timeout > Duration::zero() ? mono_now() + timeout : MonoTime::max();
}

// It may be put off meanwhile.
asio::awaitable<void> Dialer::until_deadline() {
  while (mono_now() < deadline_) {
    asio::steady_timer timer(executor_, deadline_);
    co_await store::wait_for(timer);
  }
}

void Dialer::has_answered() {
  if (deadline_ != MonoTime::max()) deadline_ = mono_now() + timeout_;
}

// Of the attempt under way.
Duration Dialer::time_left() const {
  if (deadline_ == MonoTime::max()) return kAttempt;
  return std::max<Duration>(deadline_ - mono_now(), kLeastTimeLeft);
}

// Of one connect.  What is left of the search is enough for one more try.
store::ClientConfig Dialer::one_attempt(Duration longest) {
  store::ClientConfig client;
  client.connect_timeout =
      std::min(std::min(kAttempt, longest),
               std::max<Duration>(parts_.search_ends() - mono_now(), kLeastAttempt));
  client.tries_once = true;
  client.namespace_name = keys::kNamespace;
  client.resolver = &resolver_;
  parts_.security.add_to(client);
  return client;
}

store::Async<std::unique_ptr<store::Client>> Dialer::connect(Endpoint at) {
  store::ClientConfig client = one_attempt(time_left());
  client.silence_limit = config_.member.node.policy.silence_limit();
  auto connected = co_await store::Client::connect(executor_, std::move(at), client);
  if (!connected && !parts_.security.obstacle().empty()) {
    co_return Error{connected.error().code, connected.error().context + "; " +
                                                parts_.security.obstacle() + " on this node"};
  }
  co_return connected;
}

store::Async<std::unique_ptr<store::Client>> Dialer::connect_within(Duration longest, Endpoint at) {
  store::ClientConfig client = one_attempt(longest);
  keep_brief(client, longest);
  co_return co_await store::Client::connect(executor_, std::move(at), client);
}

store::Async<std::unique_ptr<store::Client>> Dialer::connect_to_home(Duration longest) {
  if (config_.other_ports.empty()) co_return co_await connect_within(longest, config_.endpoint);
  Error none{Errc::Closed, "no host of this run"};
  for (std::uint16_t port : ports()) {
    auto found = co_await look_for_home(port, longest);
    if (found) co_return found;
    none = found.error();
  }
  co_return none;
}

store::Async<bool> Dialer::is_here() {
  auto addresses = co_await resolver_.resolve(
      config_.endpoint, mono_now() + one_attempt(time_left()).connect_timeout);
  if (!addresses) co_return addresses.error();
  std::vector<std::string> own = store::own_addresses();
  auto is_own = [&](const auto& address) {
    return address.address().is_loopback() ||
           std::ranges::find(own, store::numeric(address.address())) != own.end();
  };
  const bool is_here = std::ranges::any_of(*addresses, is_own);
  others_.clear();
  for (const auto& address : *addresses) {
    if (!is_own(address))
      others_.push_back({.host = store::numeric(address.address()), .port = config_.endpoint.port});
  }
  auto first = std::ranges::min_element(*addresses, {},
                                        [](const auto& address) { return address.address(); });
  is_first_ = first == addresses->end() || is_own(*first);
  if (is_here && !others_.empty() && !std::exchange(is_ambiguity_told_, true)) {
    parts_.log(config_.endpoint.host + " is this machine's name and also that of " +
               others_.front().host + ": if that is another node of the run, " +
               (is_first_ ? "it joins this one"
                          : "it hosts if it comes within " + seconds_text(kOthersFirst)) +
               "; better let --rdzv-endpoint name one machine");
  }
  co_return is_here;
}

asio::awaitable<bool> Dialer::may_begin_here() {
  if (others_.empty()) co_return true;
  const std::size_t count = std::min(others_.size(), kMostOthers);
  for (std::size_t i = 0; i < count; ++i) {
    auto other = co_await connect_within(kOtherAttempt, others_[i]);
    if (other) co_return false;
  }
  if (is_first_) co_return true;
  if (!others_since_) others_since_ = mono_now();
  co_return mono_now() - *others_since_ >= kOthersFirst;
}

std::vector<std::uint16_t> Dialer::ports() const {
  std::vector<std::uint16_t> ports = {config_.endpoint.port};
  ports.insert(ports.end(), config_.other_ports.begin(), config_.other_ports.end());
  return ports;
}

store::Async<void> Dialer::find_port() {
  std::string tried;
  for (std::uint16_t port : ports()) {
    auto found = co_await look_for_home(port, time_left());
    if (found) {
      config_.use_port(port);
      co_return Result<void>{};
    }
    if (tried.empty()) tried = to_string(found.error());
  }
  co_return Error{Errc::Closed, tried + " (and no host of this run at " +
                                    std::to_string(config_.other_ports.size()) + " further ports)"};
}

store::Async<std::unique_ptr<store::Client>> Dialer::look_for_home(std::uint16_t port,
                                                                   Duration longest) {
  Endpoint endpoint{.host = config_.endpoint.host, .port = port};
  auto client = co_await connect_within(longest, std::move(endpoint));
  if (!client) co_return client.error();
  std::vector<std::string> keys = {keys::home(config_.member.run)};
  auto is_home = co_await (*client)->check(std::move(keys));
  if (!is_home) co_return is_home.error();
  if (!*is_home) co_return Error{Errc::Closed, "another run is at port " + std::to_string(port)};
  co_return client;
}

}  // namespace ddprun::rendezvous
