// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/store_coordinator.h"

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/store_keys.h"
#include "rendezvous/host.h"
#include "store/event.h"

namespace ddprun::rendezvous {
namespace {

namespace asio = boost::asio;

constexpr Duration kCoordinatorWait = std::chrono::seconds(5);  // for its record to be there

}  // namespace

StoreCoordinator::StoreCoordinator(asio::any_io_executor executor, Parts parts)
    : executor_(executor), parts_(std::move(parts)) {}

StoreCoordinator::~StoreCoordinator() = default;

// Whether a coordinator's pulse moves.
store::Async<bool> StoreCoordinator::beats(store::Client& client, std::string pulse) {
  auto before = co_await client.get(pulse, kCoordinatorWait, kMaxMessageBytes);
  if (!before) co_return before.error();
  asio::steady_timer timer(executor_, std::chrono::seconds(1));
  co_await store::wait_for(timer);
  auto after = co_await client.get(pulse, kCoordinatorWait, kMaxMessageBytes);
  if (!after) co_return after.error();
  co_return *after != *before;
}

store::Async<std::string> StoreCoordinator::find(store::Client& client) {
  if (client.has_extensions()) {
    auto record = co_await client.get(keys::kCoordinator, kCoordinatorWait, kMaxMessageBytes);
    bool is_missing = !record && record.error().code == Errc::TimedOut;
    if (!is_missing) co_return record;
    co_return Error{Errc::TimedOut, client.peer() +
                                        " is a store at which no rendezvous is held, such as that "
                                        "of another run's workers"};
  }
  if (parts_.is_static) {  // the static backend
    co_return Error{Errc::InvalidInput,
                    client.peer() +
                        " is taken by another program's TCPStore; the workers of the static "
                        "backend need one that is empty in every round"};
  }
  co_return co_await claim(client);
}

store::Async<std::string> StoreCoordinator::claim(store::Client& client) {
  std::string mine = coordinator_record(parts_.host, false);
  auto record = co_await client.compare_set(keys::kCoordinator, "", mine, kMaxMessageBytes);
  if (record && *record != mine) {
    auto lives = co_await beats(client, keys::pulse(*record));
    if (!lives) co_return lives.error();
    if (*lives) co_return record;
    // The one who claimed it is gone.
    std::string theirs = *record;
    record = co_await client.compare_set(keys::kCoordinator, theirs, mine, kMaxMessageBytes);
  }
  if (!record || *record != mine) co_return record;
  auto in = co_await parts_.connect();
  if (!in) co_return in.error();
  auto out = co_await parts_.connect();
  if (!out) co_return out.error();
  ServiceConfig config;
  config.record = mine;
  config.log = parts_.log;
  config.on_failed = parts_.log;  // another node coordinates when the pulse stands still
  auto service = co_await CoordinatorService::start(executor_, std::move(config), std::move(*in),
                                                    std::move(*out), true);
  if (!service) co_return service.error();
  co_await stop();  // of one before, whose pulse has stood still
  service_ = std::move(*service);
  co_return mine;
}

void StoreCoordinator::close() {
  if (service_) service_->close();
}

asio::awaitable<void> StoreCoordinator::stop() {
  if (service_) co_await service_->stop();
}

}  // namespace ddprun::rendezvous
