// SPDX-License-Identifier: BSD-3-Clause
//
// Tells the workers' store whom to expect, so that its page /status can say who has not come.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <vector>

#include "store/base/endpoint.h"
#include "store/client.h"

namespace ddprun::rendezvous {

struct StartedWorker {
  int rank = 0;
  int pid = 0;
};

// Announces the world and `workers`, which this node has started, to the store at `master`; what is
// returned keeps that up as long as it lives.  Nothing where the store cannot be reached or is not
// ours: the run does not depend on it.
boost::asio::awaitable<std::unique_ptr<store::Client>> announce(
    boost::asio::any_io_executor executor, Endpoint master, int world_size,
    std::vector<StartedWorker> workers);

}  // namespace ddprun::rendezvous
