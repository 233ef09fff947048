// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/node_id.h"

#include <string_view>
#include <utility>

namespace ddprun::rendezvous::coordinator {

std::string name_of(const std::string& id) {
  return id.substr(0, id.rfind('.'));
}

std::string host_of(const std::string& name) {
  constexpr std::size_t kEnd = 37;  // "-" and a UUID
  bool has_id = name.size() > kEnd && name[name.size() - kEnd] == '-';
  if (!name.starts_with(kDaemonName)) return has_id ? name.substr(0, name.size() - kEnd) : name;
  std::size_t begin = std::string_view(kDaemonName).size();
  return "ddpd on " + name.substr(begin, name.rfind('-') - begin);
}

std::string hosting_node(const std::string& coordinator) {
  return coordinator.substr(0, coordinator.find('@'));
}

std::string agent_text(const std::string& coordinator, const std::string& unknown) {
  if (auto at = coordinator.find('@'); at != std::string::npos)
    return host_of(coordinator.substr(0, at));
  std::size_t host = coordinator.find(' ');
  std::size_t pid = coordinator.rfind(' ');
  if (host == pid) return unknown;
  return coordinator.substr(host + 1, pid - host - 1) + " (pid " + coordinator.substr(pid + 1) +
         ")";
}

bool comes_before(const std::string& one, const std::string& other) {
  return std::pair(one.size(), one) < std::pair(other.size(), other);
}

}  // namespace ddprun::rendezvous::coordinator
