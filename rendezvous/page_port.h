// SPDX-License-Identifier: BSD-3-Clause
//
// The port at which a run of one node shows its pages: it has no rendezvous to show them, and the
// store of its workers is another one in each round.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/decide/page_port_config.h"
#include "store/page_source.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// A server that has nothing but pages: clients of a store are closed.  Fails where it cannot
// listen, with the address and the system's reason.  `log` is told of whom it refuses, once for
// each address and user.  `pages` must outlive the server.
Result<std::unique_ptr<store::Server>> open_page_port(
    boost::asio::any_io_executor executor, const PagePortConfig& config,
    const store::PageSource& pages, const std::function<void(const std::string&)>& log);

}  // namespace ddprun::rendezvous
