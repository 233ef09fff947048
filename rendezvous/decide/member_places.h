// SPDX-License-Identifier: BSD-3-Clause
//
// The places at which a node looks for its run: the endpoint that the user gave, or several of
// them, and the nodes that stand in for a host that is lost.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/member_state.h"
#include "store/base/endpoint.h"

namespace ddprun::rendezvous::member {

struct Place {
  std::optional<Endpoint> at;      // nothing: the endpoint that the user gave
  std::optional<std::size_t> own;  // it is this node's: how many stand-ins come before it
};

// In the order in which the run is looked for.
std::vector<Place> places_of(const State& state, const Config& config);

// Where a host looks whether the run is elsewhere as well: while it waits, wherever it may be; with
// a round, at the endpoint, where nodes come that do not know of it, or who stands in the registry.
std::vector<std::optional<Endpoint>> places_to_knock_at(const State& state, const Config& config);

// Which of several endpoints a place is; none of them: their number.
std::size_t endpoint_of(const std::optional<Endpoint>& place, const Config& config);

// What people call the place where this node is, or tries to be.
std::string where(const State& state, const Config& config);

// The same and what it is to the run: "node0:29400, where the nodes meet", or, where a registry
// says who hosts, "10.0.0.2:39735 (node2), which hosts the run".
std::string meeting_text(const State& state, const Config& config);

// Which of several endpoints gave the last sign of life.
std::string heard_last_at(const State& state, const Config& config);

// That nothing has been heard for `silence`, and from where.  Of several endpoints it is the one
// whose sign of life was the last, wherever the node may be by now.
std::string silence_text(const State& state, const Config& config, const std::string& silence);

}  // namespace ddprun::rendezvous::member
