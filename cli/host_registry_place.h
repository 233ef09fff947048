// SPDX-License-Identifier: BSD-3-Clause
//
// Where the user wants it written down who hosts the run.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>

#include "rendezvous/decide/network_config.h"
#include "rendezvous/host_registry.h"
#include "worker/process/io_thread.h"

namespace ddprun::cli {

// nullptr where an endpoint says who hosts.  `disk` must outlive every use of the registry.
std::unique_ptr<rendezvous::HostRegistry> make_host_registry(
    boost::asio::any_io_executor executor, const rendezvous::NetworkConfig& network,
    process::IoThread& disk);

}  // namespace ddprun::cli
