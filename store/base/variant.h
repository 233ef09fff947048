// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ddprun {

// Makes one visitor out of several lambdas, for std::visit.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

}  // namespace ddprun
