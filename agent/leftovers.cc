// SPDX-License-Identifier: BSD-3-Clause
#include "agent/leftovers.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <utility>
#include <vector>

#include "store/base/seconds.h"
#include "store/clock.h"
#include "worker/process/proc_files.h"

namespace ddprun::agent {
namespace {

// After this a line names what is waited for; a shorter wait needs none.
constexpr auto kSilentWait = std::chrono::seconds(1);

}  // namespace

Leftovers::Leftovers(Sweep sweep, std::shared_ptr<const process::SweepScope> scope,
                     std::shared_ptr<spdlog::logger> logger)
    : sweep_(std::move(sweep)), scope_(std::move(scope)), logger_(std::move(logger)) {}

process::SweepScope Leftovers::whole_scope() const {
  return scope_ ? *scope_ : process::SweepScope();
}

void Leftovers::leave(pid_t pid) {
  left_alone_[pid] = process::start_time_of(pid);
}

std::set<pid_t> Leftovers::spared_now() {
  std::erase_if(left_alone_, [](const auto& one) {
    const bool has_gone = ::kill(one.first, 0) != 0 && errno == ESRCH;
    const std::uint64_t started_at = process::start_time_of(one.first);  // 0: not to be had now
    return has_gone || (started_at != 0 && started_at != one.second);
  });
  std::set<pid_t> spared = spared_;
  for (const auto& [pid, started_at] : left_alone_) spared.insert(pid);
  return spared;
}

boost::asio::awaitable<process::SweepResult> Leftovers::end(std::set<pid_t> ending,
                                                            std::set<pid_t> helpers) {
  using namespace boost::asio::experimental::awaitable_operators;
  process::SweepScope scope = whole_scope();
  scope.spared = std::move(ending);
  scope.spared.merge(spared_now());
  scope.spared.insert(helpers.begin(), helpers.end());  // also before it leads a session
  scope.spared_sessions = std::move(helpers);
  scope.asked = asked_;
  auto outcome = co_await (sweep_(deadline_, scope) || tell_what_stays(scope));
  co_return std::get<0>(std::move(outcome));
}

// Never returns.
boost::asio::awaitable<void> Leftovers::tell_what_stays(process::SweepScope scope) {
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  timer.expires_after(kSilentWait);
  co_await timer.async_wait(boost::asio::use_awaitable);
  Duration left = deadline_ - mono_now();
  std::vector<process::Leftover> staying = process::descendants(scope);
  if (left > Duration::zero() && !staying.empty()) {
    logger_->warn("the workers have ended; waiting at most {} for what they have left behind: {}",
                  seconds_text(left), process::to_string(staying));
  }
  timer.expires_at(MonoTime::max());
  co_await timer.async_wait(boost::asio::use_awaitable);
}

boost::asio::awaitable<void> Leftovers::wait_for_shm_managers() {
  process::SweepScope scope = whole_scope();
  scope.spared = spared_now();
  scope.is_for_shm_managers = true;
  std::vector<process::Leftover> managers = process::descendants(scope);
  if (managers.empty()) co_return;
  logger_->info("waiting about 2 s until torch has removed the workers' shared memory: {}",
                process::to_string(managers));
  deadline_ = mono_now() + process::kShmManagerLimit;
  co_await sweep_(deadline_, std::move(scope));
}

std::string Leftovers::tell(const process::SweepResult& result) {
  if (!result.found.empty()) {
    logger_->warn("ended what the workers had left behind: {}", process::to_string(result.found));
  }
  if (result.stuck.empty()) return "";
  std::string names = process::to_string(result.stuck);
  logger_->error("these processes do not end, not even by SIGKILL; going on without them: {}",
                 names);
  for (const process::Leftover& stuck : result.stuck) leave(stuck.pid);
  return "these do not end, not even by SIGKILL: " + names;
}

}  // namespace ddprun::agent
