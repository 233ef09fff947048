// SPDX-License-Identifier: BSD-3-Clause
//
// How ranks on several machines see that one of them is gone.  Each holds a listening socket that
// it never accepts from: while the process lives its kernel takes a connection, and from the moment
// it ends the same kernel refuses one, without a thread, a heartbeat or a store.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "store/base/endpoint.h"

namespace ddprun::ddp {

// Threads: any.  Lifetime: the destructor closes the socket, and so does the end of the process.
class Presence {
 public:
  // Listens at `address`, in digits, on a port that the kernel chooses.
  static Result<std::unique_ptr<Presence>> open(const std::string& address);

  Presence(const Presence&) = delete;
  ~Presence();

  const Endpoint& endpoint() const { return endpoint_; }

 private:
  Presence(int fd, Endpoint endpoint) : fd_(fd), endpoint_(std::move(endpoint)) {}

  int fd_;
  Endpoint endpoint_;
};

// Which of `endpoints` (digits; an empty host is passed over) refuse a connection, by their index.
// Who does not answer within `limit` is not among them: nobody knows about it.
std::vector<std::size_t> refusing(const std::vector<Endpoint>& endpoints,
                                  std::chrono::milliseconds limit);

}  // namespace ddprun::ddp
