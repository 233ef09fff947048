// SPDX-License-Identifier: BSD-3-Clause
//
// The system calls on sockets for which Asio does not do what a launcher needs: every descriptor
// here is close-on-exec from birth, because the process starts workers, and no name is ever looked
// up, because the caller has one thread and a name server may be slow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "store/base/endpoint.h"
#include "store/base/error.h"
#include "store/base/fd.h"
#include "store/base/time.h"

namespace ddprun::store {

// Opens a non-blocking listening socket, whose connections send small segments without delay and
// have keep-alive, so that a peer whose machine loses power counts as gone after two minutes.  The
// host is a numeric address, or "localhost" for
// 127.0.0.1; "::" takes IPv4 as well.  Fails with Errc::InvalidInput for any other name, and with
// the system's code and "bind HOST:PORT" as context where it cannot be had.
Result<Fd> listen_on(const Endpoint& endpoint);

// The same without listening: the port is this process's, and connections to it are refused.  A
// socket of listen_on() for the same address may listen beside it, again and again.
Result<Fd> bind_on(const Endpoint& endpoint);

// A connection that the peer has not acknowledged for so long (whole seconds; at least five) fails,
// also one on which nothing is said: a machine between the two may have forgotten it.
void bound_silence(int fd, Duration limit);

// Prepares a socket that another program has opened: fails with Errc::InvalidInput where it is no
// listening TCP socket.
Result<Fd> take_listener(Fd fd);

// The address that a socket is bound to.
Result<Endpoint> local_endpoint(int fd);

// The port that a socket is bound to.
Result<std::uint16_t> local_port(int fd);

// Takes the next connection, non-blocking.  None (-1) with errno set where there is none or it
// cannot be taken.
Fd accept_from(int listening_fd);

// "10.0.0.7:40112", never a name; "unknown peer" where the connection is gone.
std::string peer_of(int fd);

// Its host alone, "10.0.0.7"; empty where the connection is gone.
std::string peer_host(int fd);

// The addresses of all interfaces of this machine, numeric: "10.0.0.7", "fe80::1".
std::vector<std::string> own_addresses();

}  // namespace ddprun::store
