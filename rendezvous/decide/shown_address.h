// SPDX-License-Identifier: BSD-3-Clause
//
// Whether the addresses that a node says it has go with the one that its connection shows.  A node
// that knows no secret is not believed more than that: its workers would be let into the workers'
// store from each of them.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"

namespace ddprun::rendezvous {

// Those of `said` that are believed; all addresses are numeric.
//  - A connection over loopback, or from an address of this machine (`here`), comes from this
//    machine: it has no other addresses than `here`.
//  - Another machine has `shown` among those that it said, which then are all believed: it may have
//    several networks.  Else none is: there is NAT in between, or a proxy, or it lies.
std::vector<std::string> believed_addresses(const std::vector<std::string>& said,
                                            const std::string& shown,
                                            const std::vector<std::string>& here);

// For the log, of a node of which fewer addresses are believed than it said; empty of all others.
std::string unbelieved_text(const request::Join& join, const std::string& shown,
                            const std::vector<std::string>& believed);

}  // namespace ddprun::rendezvous
