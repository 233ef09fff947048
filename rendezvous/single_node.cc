// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/single_node.h"

#include <utility>

#include "store/client.h"

namespace ddprun::rendezvous {
namespace {

// Long enough for a name service that comes up a little later than this node.
constexpr auto kProbeTimeout = std::chrono::seconds(30);

// The store of one round, where workers that are told `master` can reach it.
Result<std::unique_ptr<store::Server>> listen_for(const boost::asio::any_io_executor& executor,
                                                  const Endpoint& master) {
  auto listen_on = [&](const std::string& host) {
    store::ServerConfig config;
    config.listen = {.host = host, .port = master.port};
    return store::Server::listen(executor, std::move(config));
  };
  if (is_loopback_host(master.host)) return listen_on(master.host);
  auto listening = listen_on("::");
  if (listening) return listening;
  const boost::system::error_code& code = listening.error().code;
  bool has_no_ipv6 = code == boost::system::errc::address_family_not_supported ||
                     code == boost::system::errc::address_not_available;
  if (!has_no_ipv6) return listening;
  return listen_on("0.0.0.0");
}

}  // namespace

SingleNodeHandler::SingleNodeHandler(boost::asio::any_io_executor executor, SingleNodeConfig config)
    : executor_(std::move(executor)), config_(std::move(config)) {}

SingleNodeHandler::~SingleNodeHandler() {
  close();
}

boost::asio::awaitable<Result<Round>> SingleNodeHandler::next_round() {
  close();
  Result<std::unique_ptr<store::Server>> listening = listen_for(executor_, config_.master);
  if (!listening) {
    Error error = listening.error();
    error.context = "worker store: " + error.context;
    co_return error;
  }
  worker_store_ = std::move(*listening);

  // What workers will do, and would try in vain for minutes where it is not possible.
  Endpoint master{.host = config_.master.host, .port = worker_store_->port()};
  auto probe =
      co_await store::Client::connect(executor_, master, {.connect_timeout = kProbeTimeout});
  if (!probe) {
    close();
    Error error = probe.error();
    error.context = "workers could not reach their store at " + to_string(master) +
                    " from this node: " + error.context;
    co_return error;
  }
  co_return Round{.number = next_number_++,
                  .ranks = assign_ranks({&config_.self, 1}).front(),
                  .master = std::move(master)};
}

void SingleNodeHandler::close() {
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
}

}  // namespace ddprun::rendezvous
