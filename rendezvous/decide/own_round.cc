// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/own_round.h"

#include <variant>

#include "rendezvous/decide/node_id.h"

namespace ddprun::rendezvous::runs {

const command::Round* own_round(const std::vector<Action>& actions, const std::string& node) {
  for (const Action& action : actions) {
    const auto* send = std::get_if<action::Send>(&action);
    const auto* round = send != nullptr ? std::get_if<command::Round>(&send->command) : nullptr;
    if (round != nullptr && coordinator::name_of(send->node) == node) return round;
  }
  return nullptr;
}

}  // namespace ddprun::rendezvous::runs
