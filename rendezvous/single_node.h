// SPDX-License-Identifier: BSD-3-Clause
//
// The rendezvous of a run that has one node: there is nobody to meet, so a round is complete at
// once.  What remains is to give each round an empty worker store.  (torchrun 2.15 keeps one store
// for all rounds; keys of the attempt before make about half of its Gloo restarts fail.)
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>

#include "rendezvous/handler.h"
#include "store/server.h"

namespace ddprun::rendezvous {

struct SingleNodeConfig {
  Participant self;

  // The address workers are told to meet at, and what the store listens on: loopback only when the
  // address can only mean this machine, else all interfaces, as torch's store does.  Port 0 takes a
  // free one each round; any other is used in every round.
  Endpoint master{.host = "127.0.0.1", .port = 0};
};

// Lifetime: owns the worker store of the current round.
class SingleNodeHandler final : public Handler {
 public:
  SingleNodeHandler(boost::asio::any_io_executor executor, SingleNodeConfig config);
  ~SingleNodeHandler() override;

  // Fails where the store cannot listen, with the address and the system's reason, and where it
  // cannot be reached at the address that the workers are told (a name that does not resolve, an
  // address of another machine, no loopback), with what was tried.
  boost::asio::awaitable<Result<Round>> next_round() override;
  void close() override;

 private:
  boost::asio::any_io_executor executor_;
  SingleNodeConfig config_;
  std::uint64_t next_number_ = 0;
  std::unique_ptr<store::Server> worker_store_;
};

}  // namespace ddprun::rendezvous
