// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/single_node.h"

#include <utility>

namespace ddprun::rendezvous {
namespace {

std::string listen_host(const std::string& master_host) {
  if (!is_loopback_host(master_host)) return "::";
  return master_host == "::1" ? "::1" : "127.0.0.1";
}

}  // namespace

SingleNodeHandler::SingleNodeHandler(boost::asio::any_io_executor executor, SingleNodeConfig config)
    : executor_(std::move(executor)), config_(std::move(config)) {}

SingleNodeHandler::~SingleNodeHandler() {
  close();
}

boost::asio::awaitable<Result<Round>> SingleNodeHandler::next_round() {
  close();
  store::ServerConfig server;
  server.listen = {.host = listen_host(config_.master.host), .port = config_.master.port};
  Result<std::unique_ptr<store::Server>> listening =
      store::Server::listen(executor_, std::move(server));
  if (!listening) {
    Error error = listening.error();
    error.context = "worker store: " + error.context;
    co_return error;
  }
  worker_store_ = std::move(*listening);
  co_return Round{.number = next_number_++,
                  .ranks = assign_ranks({&config_.self, 1}).front(),
                  .master = {.host = config_.master.host, .port = worker_store_->port()}};
}

void SingleNodeHandler::close() {
  if (worker_store_) worker_store_->close();
  worker_store_.reset();
}

}  // namespace ddprun::rendezvous
