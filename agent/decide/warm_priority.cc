// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/warm_priority.h"

#include <algorithm>

namespace ddprun::agent {

int template_nice(Duration spent, int own) {
  constexpr int kLowest = 19, kTenth = 10, kThird = 5;
  if (spent < kPriorityStep) return kLowest;
  if (spent < 2 * kPriorityStep) return std::min(kLowest, own + kTenth);
  if (spent < 3 * kPriorityStep) return std::min(kLowest, own + kThird);
  return own;
}

}  // namespace ddprun::agent
