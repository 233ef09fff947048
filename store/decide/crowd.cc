// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/crowd.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace ddprun::store {
namespace {

// The network of an address, as a name for it.  One of IPv4 is a network of its own: those of one
// network are as likely nodes of one cluster.
std::string network_of(const std::string& host) {
  constexpr std::string_view kLoopback = "127.";
  if (host.starts_with(kLoopback)) return std::string(kLoopback);
  std::array<char, 16> bytes{};
  constexpr std::size_t kNetworkBytes = 8;
  if (::inet_pton(AF_INET6, host.c_str(), bytes.data()) != 1) return host;
  return std::string(bytes.data(), kNetworkBytes);
}

}  // namespace

void Crowd::add(const std::string& host, ClientId client) {
  addresses_.add(host, client);
  networks_.add(network_of(host), client);
}

void Crowd::remove(const std::string& host, ClientId client) {
  addresses_.remove(host, client);
  networks_.remove(network_of(host), client);
}

std::optional<ClientId> Crowd::gives_way(const std::string& host, std::size_t most) const {
  const Count::Clients& own = addresses_.of(host);
  const Count::Clients& crowd = addresses_.largest();
  std::size_t kept = std::max(kKept, most / kKeptShare);
  bool has_too_many = crowd.size() > most / kShare;
  bool has_more = crowd.size() > kept && crowd.size() > own.size() + 1;
  if (has_too_many || has_more) return *crowd.rbegin();
  const Count::Clients& network = networks_.largest();
  if (own.size() > kept || network.size() <= most / kShare) return std::nullopt;
  auto last = std::find_if(network.rbegin(), network.rend(),
                           [&](ClientId client) { return !own.contains(client); });
  return last != network.rend() ? std::optional(*last) : std::nullopt;
}

void Crowd::Count::add(const std::string& place, ClientId client) {
  Clients& clients = clients_[place];
  std::size_t before = clients.size();
  clients.insert(client);
  resize(place, before, clients.size());
}

void Crowd::Count::remove(const std::string& place, ClientId client) {
  auto found = clients_.find(place);
  if (found == clients_.end()) return;
  std::size_t before = found->second.size();
  found->second.erase(client);
  std::size_t now = found->second.size();
  if (now == 0) clients_.erase(found);
  resize(place, before, now);
}

void Crowd::Count::resize(const std::string& place, std::size_t before, std::size_t now) {
  if (before > 0) sizes_.erase({before, place});
  if (now > 0) sizes_.emplace(now, place);
}

const Crowd::Count::Clients& Crowd::Count::of(const std::string& place) const {
  static const Clients kNone;
  auto found = clients_.find(place);
  return found != clients_.end() ? found->second : kNone;
}

const Crowd::Count::Clients& Crowd::Count::largest() const {
  return of(sizes_.empty() ? "" : sizes_.rbegin()->second);
}

}  // namespace ddprun::store
