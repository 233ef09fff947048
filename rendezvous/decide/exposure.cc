// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/exposure.h"

namespace ddprun::rendezvous {

std::string describe_exposure(const Endpoint& listening, bool is_narrowed,
                              const std::string& option) {
  if (is_loopback_host(listening.host)) return "";
  return std::string("any program ") + (is_narrowed ? "at the allowed addresses " : "") +
         "that reaches port " + std::to_string(listening.port) +
         " of this machine can take part here; " + option + " keeps others out";
}

}  // namespace ddprun::rendezvous
