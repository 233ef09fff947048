// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/crowd.h"

namespace ddprun::store {

void Crowd::add(const std::string& host, ClientId client) {
  std::set<ClientId>& clients = clients_[host];
  std::size_t before = clients.size();
  clients.insert(client);
  count(host, before, clients.size());
}

void Crowd::remove(const std::string& host, ClientId client) {
  auto found = clients_.find(host);
  if (found == clients_.end()) return;
  std::size_t before = found->second.size();
  found->second.erase(client);
  std::size_t now = found->second.size();
  if (now == 0) clients_.erase(found);
  count(host, before, now);
}

void Crowd::count(const std::string& host, std::size_t before, std::size_t now) {
  if (before > 0) counts_.erase({before, host});
  if (now > 0) counts_.emplace(now, host);
}

std::optional<ClientId> Crowd::last_beyond(std::size_t share) const {
  if (counts_.empty() || counts_.rbegin()->first <= share) return std::nullopt;
  return *clients_.at(counts_.rbegin()->second).rbegin();
}

}  // namespace ddprun::store
