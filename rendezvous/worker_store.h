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

// A store on all interfaces, of IPv6 and IPv4 or, on a machine without IPv6, of IPv4; the host in
// `config` does not count.
Result<std::unique_ptr<store::Server>> listen_everywhere(boost::asio::any_io_executor executor,
                                                         store::ServerConfig config);

// An empty store where workers that are told `master` can reach it: on loopback only when
// the address can only mean this machine, else on all interfaces, as torch's store does.  Port 0
// takes a free one.  Fails where it cannot listen, with the address and the system's reason.
Result<std::unique_ptr<store::Server>> listen_for_workers(boost::asio::any_io_executor executor,
                                                          const Endpoint& master);

}  // namespace ddprun::rendezvous
