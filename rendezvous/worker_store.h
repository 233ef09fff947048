// SPDX-License-Identifier: BSD-3-Clause
//
// The store that the workers of one round meet in.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/findings.h"
#include "rendezvous/decide/worker_store_access.h"
#include "store/base/endpoint.h"
#include "store/base/error.h"
#include "store/base/fd.h"
#include "store/decide/gate.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// A socket that listens on all interfaces, of IPv6 and IPv4 or, on a machine without IPv6, of IPv4.
Result<Fd> listen_everywhere(std::uint16_t port);

// A socket that listens where workers that are told `master` can reach it: on loopback only when
// the address can only mean this machine, else on all interfaces, as torch's store does.  Port 0
// takes a free one.  Fails where it cannot listen, with the address and the system's reason.  Who
// connects now waits for serve_workers().
Result<Fd> listen_for_workers(const Endpoint& master);

// What the clients of a store in `ddprun` may use: half of the memory for what they store, at least
// 1 GiB, and half of that each for requests and replies on their way.
void limit_memory(store::ServerConfig& config, std::size_t memory_size);

// Who may connect to a store of workers: processes of this machine that belong to this user, to
// root or to the job, and machines at `peers`, or all if these are not known, and what `access`
// adds.
store::Gate worker_store_gate(const WorkerStoreAccess& access,
                              const std::optional<std::vector<std::string>>& peers);

// An empty store at that socket.  `log` is told of connections that its gate refuses, once for
// each address and user.
Result<std::unique_ptr<store::Server>> serve_workers(
    boost::asio::any_io_executor executor, Fd listener, const WorkerStoreAccess& access,
    const std::optional<std::vector<std::string>>& peers,
    const std::function<void(const std::string&)>& log);

// The workers that were announced to this store and have not connected; few, and in no order.
std::vector<Unconnected> unconnected_workers(store::Server& store);

// For people: those, and who waits there for what (decide/worker_waits.h).
std::string waits_text(store::Server& store, std::uint64_t round);

}  // namespace ddprun::rendezvous
