// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/worker_store.h"

#include <utility>

namespace ddprun::rendezvous {

Result<std::unique_ptr<store::Server>> listen_everywhere(boost::asio::any_io_executor executor,
                                                         store::ServerConfig config) {
  config.listen.host = "::";
  auto listening = store::Server::listen(executor, config);
  if (listening) return listening;
  const boost::system::error_code& code = listening.error().code;
  bool has_no_ipv6 = code == boost::system::errc::address_family_not_supported ||
                     code == boost::system::errc::address_not_available;
  if (!has_no_ipv6) return listening;
  config.listen.host = "0.0.0.0";
  return store::Server::listen(executor, std::move(config));
}

Result<std::unique_ptr<store::Server>> listen_for_workers(boost::asio::any_io_executor executor,
                                                          const Endpoint& master) {
  store::ServerConfig config;
  config.listen = master;
  if (is_loopback_host(master.host)) return store::Server::listen(executor, std::move(config));
  return listen_everywhere(executor, std::move(config));
}

}  // namespace ddprun::rendezvous
