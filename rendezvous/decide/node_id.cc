// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/node_id.h"

#include <utility>

namespace ddprun::rendezvous::coordinator {

std::string name_of(const std::string& id) {
  return id.substr(0, id.rfind('.'));
}

std::string host_of(const std::string& name) {
  constexpr std::size_t kEnd = 37;  // "-" and a UUID
  bool has_id = name.size() > kEnd && name[name.size() - kEnd] == '-';
  return has_id ? name.substr(0, name.size() - kEnd) : name;
}

bool comes_before(const std::string& one, const std::string& other) {
  return std::pair(one.size(), one) < std::pair(other.size(), other);
}

}  // namespace ddprun::rendezvous::coordinator
