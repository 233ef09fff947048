// SPDX-License-Identifier: BSD-3-Clause
//
// Fetches a page of a ddprun or a ddpd.
#pragma once

#include <string>

#include "store/base/endpoint.h"
#include "store/base/error.h"
#include "store/base/time.h"

namespace ddprun::cli {

// The body of `method` `path`.  `token`: what `ddpctl page-token` prints; empty: none.  Waits for
// it, and asks again within `timeout` where the server says so (Retry-After).  Fails where nothing
// answers in time, where another program answers, and where the page is refused, with what the
// server says to that.
Result<std::string> get_page(const Endpoint& at, const std::string& path, const std::string& token,
                             Duration timeout, const std::string& method = "GET");

}  // namespace ddprun::cli
