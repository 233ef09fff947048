// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/worker_store.h"

#include <utility>

namespace ddprun::rendezvous {

Result<std::unique_ptr<store::Server>> listen_for_workers(boost::asio::any_io_executor executor,
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

}  // namespace ddprun::rendezvous
