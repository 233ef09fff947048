// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/outgoing.h"

#include <utility>

namespace ddprun::rendezvous::coordinator {

std::uint64_t Outgoing::answer_on(std::uint64_t connection) {
  return std::exchange(speaker_, connection);
}

void Outgoing::send(const std::string& id, Command command) {
  auto node = nodes_.find(id);
  send_on(id, node != nodes_.end() ? node->second.connection : speaker_, std::move(command));
}

void Outgoing::send_on(const std::string& id, std::uint64_t connection, Command command) {
  auto node = nodes_.find(id);
  if (node != nodes_.end() && node->second.connection == connection) ++node->second.delivery.told;
  actions_.emplace_back(action::Send{id, std::move(command), connection});
}

void Outgoing::forget(const std::string& id, std::uint64_t connection) {
  actions_.emplace_back(action::Forget{id, connection});
}

void Outgoing::add(Action action) {
  actions_.push_back(std::move(action));
}

std::vector<Action> Outgoing::take() {
  return std::move(actions_);
}

}  // namespace ddprun::rendezvous::coordinator
