// SPDX-License-Identifier: BSD-3-Clause
//
// A ddpd, one of several at the endpoints of a run "job", for unit tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/rendezvous/one_run.h"

namespace ddprun::rendezvous::test {

inline const std::vector<Endpoint> kEndpoints = {{"d1", 1}, {"d2", 2}};
inline const RoundId kRound{.number = 4, .by = "d1@0"};

struct Daemon : OneRun {
  std::size_t number;  // of its endpoint
  Duration last_call{};

  explicit Daemon(std::size_t number_, const std::string& name, std::vector<RunFile> files = {})
      : number(number_) {
    on(runs::event::Begun{.files = std::move(files), .name = name, .is_daemon = true});
  }
  request::Join join_of(const std::string& node) const {
    return {.host = node.substr(0, node.find('.')),
            .address = node,
            .settings = {.min_nodes = 2, .max_nodes = 3, .endpoints = kEndpoints},
            .policy = {.last_call_timeout = last_call},
            .store_port = 1000,
            .endpoint = number};
  }
  // A node of a round of so many, which saw the coordinator `of` so long ago.
  request::Join join_from(const std::string& node, Duration age, const std::string& of = "d1@0",
                          int nodes = 3) const {
    request::Join join = join_of(node);
    comes_from(join, kRound, nodes, age, of);
    return join;
  }
  void resumes(const std::string& node, Duration age = std::chrono::milliseconds(100),
               const std::string& of = "d1@0", int nodes = 3, Workers workers = Workers::Up) {
    says(node, request::Resume{
                   .join = join_from(node, age, of, nodes), .workers = workers, .failed = {}});
  }
  void beats(const std::string& node) {
    now.mono += std::chrono::milliseconds(10);
    says(node, request::Heartbeat{.pulse = now.mono.time_since_epoch().count(), .round = 4});
  }
  bool is_alone() const { return !runs::alone(state, now.mono).empty(); }
};

}  // namespace ddprun::rendezvous::test
