// SPDX-License-Identifier: BSD-3-Clause
#include "agent/leftovers.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace ddprun::agent {

Leftovers::Leftovers(Sweep sweep, std::shared_ptr<const process::SweepScope> scope,
                     std::shared_ptr<spdlog::logger> logger)
    : sweep_(std::move(sweep)), scope_(std::move(scope)), logger_(std::move(logger)) {}

boost::asio::awaitable<process::SweepResult> Leftovers::end(std::set<pid_t> ending,
                                                            std::set<pid_t> helpers) {
  process::SweepScope scope;
  if (scope_) scope = *scope_;
  scope.spared = std::move(ending);
  scope.spared.insert(spared_.begin(), spared_.end());
  scope.spared.insert(helpers.begin(), helpers.end());  // also before it leads a session
  scope.spared_sessions = std::move(helpers);
  scope.asked = asked_;
  co_return co_await sweep_(deadline_, std::move(scope));
}

std::string Leftovers::tell(const process::SweepResult& result) {
  if (!result.found.empty()) {
    logger_->warn("ended what the workers had left behind: {}", process::to_string(result.found));
  }
  if (result.stuck.empty()) return "";
  std::string names = process::to_string(result.stuck);
  logger_->error("these processes do not end, not even by SIGKILL; going on without them: {}",
                 names);
  for (const process::Leftover& stuck : result.stuck) spared_.insert(stuck.pid);
  return "these do not end, not even by SIGKILL: " + names;
}

}  // namespace ddprun::agent
