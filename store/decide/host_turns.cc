// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/host_turns.h"

#include <utility>

namespace ddprun::store {

HostTurns::Number HostTurns::add(const std::string& host) {
  std::deque<Number>& of_host = hosts_[host];
  if (of_host.empty()) ring_.push_back(host);
  of_host.push_back(++last_);
  waiting_.insert(last_);
  return last_;
}

std::optional<HostTurns::Number> HostTurns::next() {
  if (ring_.empty()) return std::nullopt;
  std::string host = std::move(ring_.front());
  ring_.pop_front();
  auto of_host = hosts_.find(host);
  Number number = of_host->second.front();
  of_host->second.pop_front();
  waiting_.erase(number);
  if (of_host->second.empty()) {
    hosts_.erase(of_host);
  } else {
    ring_.push_back(std::move(host));
  }
  return number;
}

}  // namespace ddprun::store
