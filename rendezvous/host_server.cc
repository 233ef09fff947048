// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host_server.h"

#include <algorithm>
#include <utility>

#include "rendezvous/decide/messages.h"
#include "rendezvous/worker_store.h"
#include "store/system_limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kLongestRequest = 4 * kMaxMessageBytes;
constexpr std::size_t kHeldBytes = 256 << 20;  // of what nodes say, and have not said in full

// The agent needs descriptors for its workers, their logs and their store.
void limit_strangers(store::ServerConfig& server) {
  store::raise_file_limit();
  server.max_connections = store::file_limit() / 4;
  server.max_all_connections = store::file_limit() / 8 * 7;
  if (server.serves_strangers) return;
  // Only nodes have something to say here, and what they say is short.
  server.max_held_bytes = std::min(server.max_held_bytes, kHeldBytes);
  server.wire.max_request_bytes = server.wire.max_value_bytes = kLongestRequest;
}

}  // namespace

std::string listening_host(const NetworkConfig& config) {
  bool is_local = config.bind.empty() && is_loopback_host(config.endpoint.host);
  return is_local ? config.endpoint.host : config.bind;
}

store::ServerConfig server_config_of(const NetworkConfig& config, const NodeSecurity& security,
                                     std::function<void(const std::string&)> log) {
  store::ServerConfig server;
  server.listen.host = listening_host(config);
  server.allow = config.allow;
  security.add_to(server);
  server.log = std::move(log);
  limit_memory(server, store::memory_size());
  limit_strangers(server);
  return server;
}

}  // namespace ddprun::rendezvous
