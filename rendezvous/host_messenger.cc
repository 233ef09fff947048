// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host_messenger.h"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "rendezvous/decide/store_keys.h"
#include "store/clock.h"
#include "store/event.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kTellPause = std::chrono::milliseconds(50);
constexpr Duration kLeastTimeLeft = std::chrono::milliseconds(1);

}  // namespace

store::Async<Knocked> HostMessenger::ask(std::optional<Endpoint> place, CoordinatorService& asks,
                                         Endpoint from) {
  const std::string node = parts_.config.member.name + ".knock";
  const std::uint64_t number = ++knocks_;
  const Endpoint to = place.value_or(parts_.config.endpoint);
  auto message = asks.knock(parts_.config.member.run, from, to, node, number);
  if (!message) co_return Knocked{};  // it has nothing to say
  // Soon enough for a host that stood still, whose workers are held for half of the silence limit.
  const Duration silence = parts_.config.member.node.policy.silence_limit();
  auto client = co_await connect(place, std::min(kKnockPatience, silence / 4));
  if (!client) co_return Knocked{.is_clear = true, .is_unreached = true};
  co_return co_await knock_at(**client, std::move(*message), keys::mailbox(node, number));
}

store::Async<std::unique_ptr<store::Client>> HostMessenger::connect(std::optional<Endpoint> place,
                                                                    Duration longest) {
  if (!place && parts_.registered != nullptr) {
    auto newest = co_await parts_.registered->newest();
    if (!newest) co_return newest.error();
    if (newest->generation == 0) co_return Error{Errc::Closed, "no host of this run"};
    place = newest->at;
  }
  if (place) co_return co_await parts_.dialer.connect_within(longest, *place);
  co_return co_await parts_.dialer.connect_to_home(longest);
}

asio::awaitable<void> HostMessenger::tell(std::vector<std::optional<Endpoint>> places,
                                          std::string message, MonoTime end) {
  const std::size_t count = places.size();
  asio::steady_timer pause(executor_);
  while (!places.empty()) {
    std::vector<std::optional<Endpoint>> silent;
    for (const auto& place : places) {
      auto told = co_await tell_once(place, message, end);
      if (!told) silent.push_back(place);
      if (mono_now() >= end) co_return;
    }
    places = std::move(silent);
    if (places.size() < count) co_return;
    pause.expires_after(kTellPause);
    co_await store::wait_for(pause);
  }
}

store::Async<void> HostMessenger::tell_once(std::optional<Endpoint> place, std::string message,
                                            MonoTime end) {
  auto connected = co_await connect(
      place, std::clamp<Duration>(end - mono_now(), kLeastTimeLeft, kKnockPatience));
  if (!connected) co_return connected.error();
  std::shared_ptr<store::Client> client = std::move(*connected);
  asio::steady_timer limit(executor_, end);
  limit.async_wait([client](boost::system::error_code cancelled) {
    if (!cancelled) client->close();
  });
  auto record = co_await client->get(keys::kCoordinator, kKnockPatience, kMaxMessageBytes);
  if (!record) co_return record.error();
  co_return co_await client->queue_push(keys::inbox(*record), std::move(message));
}

}  // namespace ddprun::rendezvous
