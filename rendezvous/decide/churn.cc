// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/churn.h"

#include <algorithm>

namespace ddprun::rendezvous::coordinator {

bool Churn::is_flapping(const std::string& host, int limit, MonoTime now) const {
  auto of_host = losses.find(host);
  if (limit == 0 || of_host == losses.end()) return false;
  auto recent =
      std::ranges::count_if(of_host->second, [&](MonoTime at) { return at + kFlapWindow > now; });
  return recent >= limit;
}

void Churn::note_loss(const std::string& host, int limit, MonoTime now) {
  if (limit == 0) return;
  auto& of_host = losses[host];
  of_host.push_back(now);
  if (of_host.size() > static_cast<std::size_t>(limit)) of_host.pop_front();
}

bool Churn::makes_progress(MonoTime began, MonoTime now) {
  while (!short_rounds.empty() && short_rounds.front() + kProgressWindow <= now)
    short_rounds.pop_front();
  if (now - began < kShortRound) short_rounds.push_back(now);
  return short_rounds.size() < kMaxShortRounds;
}

}  // namespace ddprun::rendezvous::coordinator
