// SPDX-License-Identifier: BSD-3-Clause
#include "agent/guardian_watch.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "store/clock.h"
#include "worker/process/pidfd.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

// One that ends sooner is not replaced at once: what kills each of them must not keep the agent
// busy.  And how often another is tried where none can be forked.
constexpr Duration kPause = std::chrono::milliseconds(500);
constexpr int kMostTold = 10;  // of those that end so, one after the other

}  // namespace

GuardianWatch::GuardianWatch(asio::any_io_executor executor, process::Reaper& reaper,
                             std::set<pid_t>& spared, std::shared_ptr<process::Guardian> guardian,
                             std::shared_ptr<spdlog::logger> logger)
    : reaper_(reaper),
      spared_(spared),
      guardian_(std::move(guardian)),
      logger_(std::move(logger)),
      again_(executor) {
  if (!guardian_) return;
  if (guardian_->pid() != -1) {
    watch();
    return;
  }
  start(
      "there is no guardian, which ends the workers' processes should ddprun be killed or stand "
      "still");
}

void GuardianWatch::stop() {
  again_.cancel();
  guardian_.reset();
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
  if (!guardian_) return;
  spared_.erase(guardian_->pid());
  std::string what = fmt::format(
      "the guardian (pid {}), which ends the workers' processes should "
      "ddprun be killed or stand still, has ended ({})",
      guardian_->pid(), process::to_string(status));
  if (!replaced_at_ || mono_now() >= *replaced_at_ + kPause) {
    quick_deaths_ = 0;
    start(what);
    return;
  }
  if (++quick_deaths_ <= kMostTold) {
    logger_->error("{}; the next one follows in a moment{}", what,
                   quick_deaths_ == kMostTold ? "; further ones are not told" : "");
  }
  start_later();
}

void GuardianWatch::start(const std::string& what) {
  Result<void> started = guardian_->start_again();
  if (!started) {
    if (!std::exchange(lacks_one_, true)) {
      logger_->error("{}, and no other can be started: {}; trying again until it can", what,
                     to_string(started.error()));
    }
    return start_later();
  }
  replaced_at_ = mono_now();
  watch();
  lacks_one_ = false;
  if (quick_deaths_ >= kMostTold) return;
  logger_->warn("{}; a new one has been started, pid {}", what, guardian_->pid());
}

void GuardianWatch::start_later() {
  again_.expires_after(kPause);
  again_.async_wait([this](boost::system::error_code error) {
    if (!error && guardian_) start("there was no guardian for a while");
  });
}

}  // namespace ddprun::agent
