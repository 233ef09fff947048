// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/announce.h"

#include <string>
#include <utility>

namespace ddprun::rendezvous {

boost::asio::awaitable<std::unique_ptr<store::Client>> announce(
    boost::asio::any_io_executor executor, Endpoint master, int world_size,
    std::vector<StartedWorker> workers) {
  store::ClientConfig config;
  config.connect_timeout = std::chrono::seconds(5);
  auto client = co_await store::Client::connect(executor, master, config);
  if (!client || !(*client)->has_extensions()) co_return nullptr;
  auto told = co_await (*client)->expect_world(world_size);
  for (const StartedWorker& worker : workers) {
    if (!told) co_return nullptr;
    std::string who = "rank " + std::to_string(worker.rank);
    told = co_await (*client)->expect(who, static_cast<std::uint32_t>(worker.pid));
  }
  co_return std::move(*client);
}

}  // namespace ddprun::rendezvous
