// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/reaper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>

#include "store/base/check.h"

namespace ddprun::process {
namespace {

ExitStatus status_of(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {.exit_code = info.si_status};
  return {.signal = info.si_status, .core_dumped = info.si_code == CLD_DUMPED};
}

}  // namespace

struct Reaper::Watched {
  pid_t pid;
  boost::asio::posix::stream_descriptor pidfd;
  std::function<void(ExitStatus)> on_exit;
  bool is_held = false;  // it has ended, and a debugger still keeps it
};

Reaper::Reaper(boost::asio::any_io_executor executor)
    : executor_(executor), sigchld_(executor, SIGCHLD) {
  wait_for_sigchld();
}

Reaper::~Reaper() = default;

Result<void> Reaper::become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return system_error(errno, "become subreaper");
  return {};
}

void Reaper::watch(Process process, std::function<void(ExitStatus)> on_exit) {
  auto watched = watched_.insert(
      watched_.end(),
      {process.pid, boost::asio::posix::stream_descriptor(executor_, process.pidfd.release()),
       std::move(on_exit)});
  watched->pidfd.async_wait(
      boost::asio::posix::descriptor_base::wait_read,
      [this, watched, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
        if (!alive.expired() && !error) collect(watched);
      });
}

boost::asio::awaitable<std::optional<ExitStatus>> Reaper::ended(Process process, MonoTime limit) {
  struct Wait {
    boost::asio::steady_timer timer;
    std::optional<ExitStatus> status;
  };
  // The callback may outlive this coroutine.
  auto wait = std::make_shared<Wait>(Wait{boost::asio::steady_timer(executor_, limit), {}});
  watch(std::move(process), [wait](ExitStatus status) {
    wait->status = status;
    wait->timer.cancel();
  });
  co_await wait->timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  co_return wait->status;
}

void Reaper::collect(std::list<Watched>::iterator watched) {
  siginfo_t info = {};
  int result = ::waitid(P_PIDFD, static_cast<id_t>(watched->pidfd.native_handle()), &info,
                        WEXITED | WNOHANG);
  check(result == 0, "a watched worker was collected by someone else");
  // A tracer, gdb for one, has it until it lets go; a SIGCHLD comes then.
  watched->is_held = info.si_pid == 0;
  if (watched->is_held) return;
  auto callback = std::move(watched->on_exit);
  watched_.erase(watched);  // the pid is forgotten in the same breath as it becomes free
  callback(status_of(info));
}

void Reaper::reap_strangers() {
  for (;;) {
    siginfo_t info = {};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    auto worker = std::find_if(watched_.begin(), watched_.end(),
                               [&](const Watched& watched) { return watched.pid == info.si_pid; });
    if (worker != watched_.end() && worker->is_held) {  // its pidfd will not be looked at again
      collect(worker);
      continue;
    }
    // A worker belongs to its pidfd.  It hides the strangers behind it until it is collected, and
    // the handler of its pidfd, due in this turn of the loop, is followed by another look.
    if (worker != watched_.end()) {
      boost::asio::post(executor_, [this, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) reap_strangers();
      });
      return;
    }
    ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED);
  }
}

void Reaper::wait_for_sigchld() {
  sigchld_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error, int) {
    if (alive.expired() || error) return;
    reap_strangers();
    if (on_change_) on_change_();
    wait_for_sigchld();
  });
}

}  // namespace ddprun::process
