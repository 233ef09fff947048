// SPDX-License-Identifier: BSD-3-Clause
//
// How ranks on several machines detect that one of them is gone.  Each rank holds a listening
// socket and never accepts.  The kernel completes connections while the process lives and refuses
// them once it has ended.  This needs no thread, no heartbeat and no store.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "store/base/endpoint.h"

namespace ddprun::ddp {

// Threads: any.  Lifetime: the destructor closes the socket, and so does the end of the process.
class LivenessSocket {
 public:
  // Listens at the numeric `address`, on a port that the kernel chooses.
  static Result<std::unique_ptr<LivenessSocket>> open(const std::string& address);

  LivenessSocket(const LivenessSocket&) = delete;
  ~LivenessSocket();

  const Endpoint& endpoint() const { return endpoint_; }

 private:
  LivenessSocket(int fd, Endpoint endpoint) : fd_(fd), endpoint_(std::move(endpoint)) {}

  int fd_;
  Endpoint endpoint_;
};

// The indices of the `endpoints` that refuse a connection.  Hosts are numeric; an empty host is
// skipped. An endpoint that does not answer within `limit` is not in the result: its state is
// unknown.
std::vector<std::size_t> closed_peers(const std::vector<Endpoint>& endpoints,
                                      std::chrono::milliseconds limit);

}  // namespace ddprun::ddp
