// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ddprun {

// Makes one visitor out of several lambdas, for std::visit.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

// For clang before 17, which cannot deduce it.
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace ddprun
