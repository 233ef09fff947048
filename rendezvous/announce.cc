// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/announce.h"

#include <charconv>
#include <system_error>
#include <utility>

namespace ddprun::rendezvous {
namespace {

constexpr std::string_view kRank = "rank ";

std::string refused_by(const Endpoint& master) {
  return "the workers' store at " + to_string(master) +
         " does not serve this node, and so not its workers: its address (--worker-store-allow "
         "admits more) or its user (--allow-users admits all) is not of this round";
}

}  // namespace

std::optional<int> announced_rank(std::string_view name) {
  if (!name.starts_with(kRank)) return std::nullopt;
  name.remove_prefix(kRank.size());
  int rank = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  bool is_rank = error == std::errc() && end == name.data() + name.size() && rank >= 0;
  return is_rank ? std::optional(rank) : std::nullopt;
}

boost::asio::awaitable<void> Announcement::make(
    Endpoint master, int world_size, std::vector<StartedWorker> workers,
    std::function<void(const std::string&)> unreachable) {
  std::uint64_t version = ++version_;
  store::ClientConfig config;
  config.connect_timeout = std::chrono::seconds(5);
  auto client = co_await store::Client::connect(executor_, master, config);
  if (version != version_) co_return;
  if (!client) {
    co_return unreachable("this node cannot reach the workers' store at " + to_string(master) +
                          ": " + to_string(client.error()) +
                          " (a firewall may be in between, or NAT: see --worker-store-allow; or "
                          "it is another user's: see --allow-users)");
  }
  if (!(*client)->has_extensions()) co_return;
  auto told = co_await (*client)->expect_world(world_size);
  for (const StartedWorker& worker : workers) {
    if (!told) break;
    std::string who = std::string(kRank) + std::to_string(worker.rank);
    told = co_await (*client)->expect(who, static_cast<std::uint32_t>(worker.pid));
  }
  if (version != version_) co_return;
  bool is_refused = !told && told.error().code == Errc::Closed;
  if (is_refused) co_return unreachable(refused_by(master));
  client_ = std::move(*client);
}

void Announcement::withdraw() {
  ++version_;
  client_.reset();
}

}  // namespace ddprun::rendezvous
