// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/worker_store.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/announce.h"
#include "rendezvous/decide/worker_waits.h"
#include "store/socket.h"
#include "store/system_limits.h"

namespace ddprun::rendezvous {

Result<Fd> listen_everywhere(std::uint16_t port) {
  auto listening = store::listen_on({.host = "::", .port = port});
  if (listening) return listening;
  std::error_code code = listening.error().code;
  bool has_no_ipv6 =
      code == std::errc::address_family_not_supported || code == std::errc::address_not_available;
  if (!has_no_ipv6) return listening;
  return store::listen_on({.host = "0.0.0.0", .port = port});
}

Result<Fd> listen_for_workers(const Endpoint& master) {
  if (is_loopback_host(master.host)) return store::listen_on(master);
  return listen_everywhere(master.port);
}

void limit_memory(store::ServerConfig& config, std::size_t memory_size) {
  constexpr std::size_t kLeast = std::size_t{1} << 30;
  config.keyspace.max_bytes = std::max(memory_size / 2, kLeast);
  config.max_reply_bytes = config.keyspace.max_bytes / 2;
  config.max_held_bytes = std::min(config.max_held_bytes, config.keyspace.max_bytes / 2);
}

store::Gate worker_store_gate(const WorkerStoreAccess& access,
                              const std::optional<std::vector<std::string>>& peers) {
  store::Gate gate{
      .machines = access.machines,
      .any_machine = access.any_machine || !peers,
      .user = ::geteuid(),
      .any_user = access.any_user,
      .admits_user = access.is_of_job,
      .advice_for_machines = ": no node of this round has it (--worker-store-allow admits more)",
      .advice_for_users = " (--allow-users admits all)"};
  for (const std::string& address : store::own_addresses()) gate.own.add(address);
  if (peers) {
    for (const std::string& address : *peers) gate.machines.add(address);
  }
  return gate;
}

Result<std::unique_ptr<store::Server>> serve_workers(
    boost::asio::any_io_executor executor, Fd listener, const WorkerStoreAccess& access,
    const std::optional<std::vector<std::string>>& peers,
    const std::function<void(const std::string&)>& log) {
  store::ServerConfig config;
  config.gate = worker_store_gate(access, peers);
  limit_memory(config, store::memory_size());
  config.expected_clients = 1;  // a line about a short queue in each round would be too many
  config.log = [log](const std::string& line) { log("the workers' store: " + line); };
  return store::Server::serve(std::move(executor), std::move(listener), std::move(config));
}

std::vector<Unconnected> unconnected_workers(store::Server& store) {
  std::vector<Unconnected> workers;
  for (const auto& missing : store.missing_clients(Findings::kMaxWorkers)) {
    auto rank = announced_rank(missing.name);
    if (rank) workers.push_back({.rank = *rank, .pid = static_cast<int>(missing.pid)});
  }
  return workers;
}

std::string waits_text(store::Server& store, std::uint64_t round) {
  return encode_waits(round, store.join_progress(), store.waiters());
}

}  // namespace ddprun::rendezvous
