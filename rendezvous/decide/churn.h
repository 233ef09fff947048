// SPDX-License-Identifier: BSD-3-Clause
//
// What nodes that come and go have cost a run: hosts that were lost, and rounds that were cut
// short. A value with no clock.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>

#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// A host that was lost flap_limit times in this time is not counted on.
inline constexpr Duration kFlapWindow = std::chrono::minutes(10);

// A run ends when losses of nodes have cut so many rounds short, each younger than kShortRound, in
// kProgressWindow.
inline constexpr std::size_t kMaxShortRounds = 20;
inline constexpr Duration kShortRound = std::chrono::seconds(30);
inline constexpr Duration kProgressWindow = std::chrono::minutes(10);

struct Churn {
  std::map<std::string, std::deque<MonoTime>> losses;  // of a host
  std::deque<MonoTime> short_rounds;                   // ends of those that were cut short

  // A host that is lost again and again would stop every round.  No limit: 0.
  bool is_flapping(const std::string& host, int limit, MonoTime now) const;
  void note_loss(const std::string& host, int limit, MonoTime now);

  // A round is cut short that began at `began`.  False: too many have been.
  [[nodiscard]] bool makes_progress(MonoTime began, MonoTime now);
};

}  // namespace ddprun::rendezvous::coordinator
