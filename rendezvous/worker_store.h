// SPDX-License-Identifier: BSD-3-Clause
//
// The store that the workers of one round meet in.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>

#include "store/base/endpoint.h"
#include "store/base/error.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// An empty store where workers that are told `master` can reach it: on loopback only when
// the address can only mean this machine, else on all interfaces, as torch's store does.  Port 0
// takes a free one.  Fails where it cannot listen, with the address and the system's reason.
Result<std::unique_ptr<store::Server>> listen_for_workers(boost::asio::any_io_executor executor,
                                                          const Endpoint& master);

}  // namespace ddprun::rendezvous
