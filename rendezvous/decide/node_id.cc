// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/node_id.h"

#include <utility>

namespace ddprun::rendezvous::coordinator {

std::string name_of(const std::string& id) {
  return id.substr(0, id.rfind('.'));
}

bool comes_before(const std::string& one, const std::string& other) {
  return std::pair(one.size(), one) < std::pair(other.size(), other);
}

}  // namespace ddprun::rendezvous::coordinator
