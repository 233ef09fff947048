// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <filesystem>
#include <string>

#include "store/base/number.h"
#include "worker/process/pidfd.h"

namespace ddprun::process {
namespace {

constexpr int kRounds = 1000;          // of killing, until nothing carries the mark any more
constexpr useconds_t kPause = 10'000;  // between rounds; microseconds

bool kill_marked(const Marks& marks) {
  bool found = false;
  std::error_code error;
  const pid_t self = ::getpid();
  for (const auto& folder : std::filesystem::directory_iterator("/proc", error)) {
    auto pid = number_in<pid_t>(folder.path().filename().native());
    if (!pid || *pid == self) continue;
    Fd process = open_pidfd(*pid);
    if (!carries(*pid, marks)) continue;
    found = true;
    send_signal(process, SIGKILL);
  }
  return found;
}

constexpr int kReports = 1;  // the guardian's descriptor

void report(int signal, siginfo_t* info, void*) {
  int error = errno;
  SignalReport report{.signal = signal, .sender = info->si_pid};
  (void)!::write(kReports, &report, sizeof report);
  errno = error;
}

// Every signal that somebody may send for a purpose.
void report_signals() {
  struct sigaction action = {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
                     SIGPROF, SIGIO, SIGPWR, SIGURG, SIGWINCH, SIGXCPU, SIGXFSZ, SIGSTKFLT})
    ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

// What the guardian does, from its fork to its end.
[[noreturn]] void guard(int pipe, int reports, const Marks& marks) {
  ::setsid();
  ::prctl(PR_SET_NAME, "ddprun-guardian");
  ::dup2(pipe, 0);  // nobody must wait for our copies of the agent's stdout and stderr to close
  ::dup2(reports, kReports);
  ::syscall(SYS_close_range, 2U, UINT_MAX, 0U);
  report_signals();
  (void)!::chdir("/");

  char word = 0;
  ssize_t count = 0;
  do {
    count = ::read(0, &word, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 0 && is_own_proc()) {
    for (int round = 0; round < kRounds && kill_marked(marks); ++round) ::usleep(kPause);
  }
  ::_exit(0);
}

}  // namespace

Result<Guardian> Guardian::start(Marks marks) {
  Guardian guardian(std::move(marks));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "make the guardian's pipe");
  guardian.guardians_pipe_ = Fd(ends[0]);
  guardian.pipe_ = Fd(ends[1]);
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return system_error(errno, "make the guardian's pipe");
  guardian.reports_ = Fd(ends[0]);
  guardian.guardians_reports_ = Fd(ends[1]);
  Result<void> started = guardian.start_again();
  if (!started) return started.error();
  return guardian;
}

Result<void> Guardian::start_again() {
  pid_t pid = ::fork();
  if (pid < 0) return system_error(errno, "fork the guardian");
  if (pid == 0) guard(guardians_pipe_.get(), guardians_reports_.get(), marks_);
  pid_ = pid;
  return {};
}

Guardian::~Guardian() {
  if (pipe_) (void)!::write(pipe_.get(), "x", 1);
}

}  // namespace ddprun::process
