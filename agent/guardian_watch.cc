// SPDX-License-Identifier: BSD-3-Clause
#include "agent/guardian_watch.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <utility>

#include "worker/process/pidfd.h"

namespace ddprun::agent {
namespace {

// So many guardians are replaced: what kills each of them at once must not keep the agent busy.
constexpr int kMostGuardians = 100;

}  // namespace

GuardianWatch::GuardianWatch(process::Reaper& reaper, std::set<pid_t>& spared,
                             std::shared_ptr<process::Guardian> guardian,
                             std::shared_ptr<spdlog::logger> logger)
    : reaper_(reaper), spared_(spared), guardian_(std::move(guardian)), logger_(std::move(logger)) {
  if (guardian_) watch();
}

void GuardianWatch::watch() {
  int pid = guardian_->pid();
  spared_.insert(pid);
  Fd pidfd = process::open_pidfd(pid);
  if (!pidfd) {
    Error why = system_error(errno, "open its pidfd");
    logger_->warn("should the guardian (pid {}) end, nobody will notice: {}", pid, to_string(why));
    return;
  }
  reaper_.watch({.pid = pid, .pidfd = std::move(pidfd)},
                [this](process::ExitStatus status) { ended(status); });
}

// It ends by itself only after this process.
void GuardianWatch::ended(process::ExitStatus status) {
  std::string what = fmt::format(
      "the guardian (pid {}), which ends the workers' processes should "
      "ddprun be killed, has ended ({})",
      guardian_->pid(), process::to_string(status));
  spared_.erase(guardian_->pid());
  Result<void> started = ++lost_ <= kMostGuardians
                             ? guardian_->start_again()
                             : Error{Errc::LimitExceeded, "too many of them have ended"};
  if (!started) {
    logger_->error("{}; there is no other: {}", what, to_string(started.error()));
    return;
  }
  watch();
  logger_->warn("{}; a new one has been started, pid {}", what, guardian_->pid());
}

}  // namespace ddprun::agent
