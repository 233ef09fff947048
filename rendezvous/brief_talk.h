// SPDX-License-Identifier: BSD-3-Clause
//
// A few words with another host on a connection of their own.
#pragma once

#include <algorithm>

#include "store/base/time.h"
#include "store/client.h"

namespace ddprun::rendezvous {

// Nothing there is waited for much longer than `longest`: neither the connection nor, beyond what a
// call asks the other end to wait, an answer.  A connection that is to be made in less stays so.
inline void keep_brief(store::ClientConfig& client, Duration longest) {
  client.connect_timeout = std::min(client.connect_timeout, longest);
  client.greeting_timeout = longest;
  client.reply_timeout = 2 * longest;
}

}  // namespace ddprun::rendezvous
