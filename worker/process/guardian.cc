// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/base/folder.h"
#include "store/base/number.h"
#include "store/base/signal_mask.h"
#include "worker/process/close_from.h"
#include "worker/process/pidfd.h"
#include "worker/process/proc_files.h"

namespace ddprun::process {
namespace {

// For so long the guardian kills, until nothing carries the mark any more.
constexpr Duration kKilling = std::chrono::seconds(10);
constexpr Duration kPause = std::chrono::milliseconds(10);  // at most, between two rounds of it
constexpr std::size_t kMostAwaited = 64;  // of those killed in a round; each is a descriptor

// What the agent writes to the guardian; a last word's text follows it.  Written in one piece,
// which a pipe keeps together.
struct MessageHead {
  enum class Kind : std::uint32_t { Goodbye, Lease, LastWord } kind = Kind::Goodbye;
  std::uint32_t size = 0;     // of the text
  std::int64_t end = 0;       // of a lease, in the clock's ticks
  std::int64_t patience = 0;  // of a lease, likewise
};
static_assert(sizeof(MessageHead) + Guardian::kMaxLastWord <= PIPE_BUF);

std::string message(MessageHead head, std::string_view text = "") {
  head.size = static_cast<std::uint32_t>(text.size());
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes.append(text);
}

constexpr int kReports = 1;  // the guardian's descriptor

void report(int signal, siginfo_t* info, void*) {
  int error = errno;
  SignalReport report{.signal = signal, .sender = info->si_pid};
  (void)!::write(kReports, &report, sizeof report);
  errno = error;
}

// Every signal that a user or a scheduler may send for a purpose.
void report_signals() {
  struct sigaction action = {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
                     SIGPROF, SIGIO, SIGPWR, SIGURG, SIGWINCH, SIGXCPU, SIGXFSZ, SIGSTKFLT})
    ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

constexpr int kPipe = 0;  // the guardian's descriptor

// While there is a lease the guardian looks so often whether it has itself stood still, which shows
// by waking so late.
constexpr Duration kLook = std::chrono::milliseconds(500);
constexpr Duration kLate = std::chrono::milliseconds(250);

// And so often it holds again what it holds: who continues everything here, as a scheduler does at
// the end of a suspension, may come to the workers later than the guardian.
constexpr Duration kHoldAgain = std::chrono::milliseconds(10);

// The agent, which ends the workers at that moment itself, goes first.
constexpr Duration kAgentFirst = std::chrono::milliseconds(100);

// What the guardian's process does.
class Watch {
 public:
  Watch(const Marks& marks, const Guardian::Deliver& deliver, bool is_successor)
      : marks_(marks), deliver_(deliver), agent_(::getppid()), may_be_held_(is_successor) {}

  // From its fork to its end.
  void run() {
    while (true) {
      MonoTime began = std::chrono::steady_clock::now();
      bool has_message = is_readable(patience_left());
      MonoTime woke = std::chrono::steady_clock::now();
      if (end_ != MonoTime::max() && woke - began >= kLook + kLate) has_stood_still_ = true;
      if (has_message) {
        if (!take_message()) break;
      } else if (woke >= end_) {
        lease_is_over();
      } else if (is_holding_) {
        hold_again();
      }
    }
    if (has_goodbye_ || !is_own_proc()) return;
    const MonoTime deadline = std::chrono::steady_clock::now() + kKilling;
    bool is_one_left = true;
    while ((is_one_left = kill_marked()) && std::chrono::steady_clock::now() < deadline)
      await_killed();
    // One that does not end, as in D state, may come back to life: the others wait for the lease.
    if (!is_one_left && deliver_ && !last_word_.empty()) deliver_(last_word_);
    end_shm_managers();
  }

 private:
  Duration patience_left() const {
    if (end_ == MonoTime::max()) return Duration::max();
    return std::clamp<Duration>(end_ - std::chrono::steady_clock::now(), Duration::zero(),
                                is_holding_ ? kHoldAgain : kLook);
  }

  static bool is_readable(Duration patience, int fd = kPipe) {
    pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
    bool is_for_ever = patience == Duration::max();
    auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
    int timeout = is_for_ever ? -1 : static_cast<int>(std::min<std::int64_t>(ms, INT_MAX));
    return ::poll(&polled, 1, timeout) > 0;
  }

  static bool read_all(void* bytes, std::size_t size) {
    auto* at = static_cast<char*>(bytes);
    while (size > 0) {
      ssize_t count = ::read(kPipe, at, size);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      at += count;
      size -= static_cast<std::size_t>(count);
    }
    return true;
  }

  // False at the end: the agent's goodbye, or its death.
  bool take_message() {
    MessageHead head;
    if (!read_all(&head, sizeof head)) return false;
    switch (head.kind) {
      case MessageHead::Kind::Goodbye:
        has_goodbye_ = true;
        return false;
      case MessageHead::Kind::Lease:
        take_lease(MonoTime(Duration(head.end)), Duration(head.patience));
        return true;
      case MessageHead::Kind::LastWord:
        last_word_.resize(head.size);
        return read_all(last_word_.data(), last_word_.size());
    }
    return false;
  }

  // One that is over was written before the standstill, or says that the others have given this
  // node up: held workers are to end without running again.
  void take_lease(MonoTime end, Duration patience) {
    end_ = end == MonoTime::max() ? end : end + kAgentFirst;
    patience_ = patience;
    if (end <= std::chrono::steady_clock::now()) return;
    has_stood_still_ = false;
    bool was_holding = std::exchange(is_holding_, false);
    if (std::exchange(may_be_held_, false) || was_holding) signal_all_marked(SIGCONT);
  }

  void lease_is_over() {
    if (!is_own_proc()) {
      end_ = MonoTime::max();
    } else if (!is_holding_ &&
               (has_stood_still_ || std::chrono::steady_clock::now() - end_ >= kLate)) {
      is_holding_ = true;
      end_ = std::chrono::steady_clock::now() + patience_;
      signal_all_marked(SIGSTOP);
    } else {
      // Until there is another lease, since a worker may still be forked that the agent was about
      // to start when it stood still; a message from the agent comes first.
      bool has_found = kill_marked();
      if (!has_found) is_holding_ = has_stood_still_ = false;
      end_ = std::chrono::steady_clock::now() + (has_found ? kPause : kLook);
    }
  }

  void hold_again() {
    if (held_.size() >= kMostAwaited) return signal_all_marked(SIGSTOP);  // there may be more
    for (const SignalTarget& process : held_) process.send(SIGSTOP);
  }

  // Until the processes that were killed have ended, as their pidfds show; one that does not, or
  // that has no pidfd, costs kPause.
  void await_killed() {
    const MonoTime deadline = std::chrono::steady_clock::now() + kPause;
    for (const SignalTarget& process : killed_) {
      Duration left = deadline - std::chrono::steady_clock::now();
      if (left <= Duration::zero() || !is_readable(left, process.pidfd().get())) return;
    }
  }

  // Whether there was one, or may have been.  The environment is looked at when nothing has the
  // limit any more: to read that of a process that stands in the kernel, be it anybody's, may take
  // for ever.
  bool kill_marked() {
    killed_.clear();
    return signal_marked(SIGKILL, has_limit) || signal_marked(SIGKILL, has_name);
  }

  // SIGSTOP or SIGCONT, which change nothing for those that get them twice.
  void signal_all_marked(int signal) {
    held_.clear();
    signal_marked(signal, has_limit);
    signal_marked(signal, has_name);
  }

  // torch's managers of shared memory do not train, and have to end by themselves: they get none of
  // these signals.
  static bool has_limit(pid_t pid, const Marks& marks) {
    return carries_limit(pid, marks) && !is_shm_manager(program_name_of(pid));
  }
  static bool has_name(pid_t pid, const Marks& marks) {
    return carries_name(pid, marks) && !is_shm_manager(program_name_of(pid));
  }

  // They end by themselves, when they have removed the shared memory of those that were killed.
  void end_shm_managers() {
    constexpr Duration kLookAgain = std::chrono::milliseconds(100);
    auto is_marked_manager = [](pid_t pid, const Marks& marks) {
      return is_shm_manager(program_name_of(pid)) && carries(pid, marks);
    };
    const MonoTime deadline = std::chrono::steady_clock::now() + kShmManagerLimit;
    bool is_late = false;
    while (signal_marked(is_late ? SIGKILL : 0, is_marked_manager) && !is_late) {
      std::this_thread::sleep_for(kLookAgain);
      is_late = std::chrono::steady_clock::now() >= deadline;
    }
  }

  // A job that a worker has submitted inherits the marks, from sbatch.
  bool is_of_another_job(pid_t pid) const {
    const std::string job = parse_slurm_job(text_of_process(pid, "cgroup"));
    return !job.empty() && job != job_;
  }

  // Whether there was one, or may have been.  A worker that is started after a renewal is found
  // after it, too: so the signal is sent only while no message has come.
  bool signal_marked(int signal, bool (*is_marked)(pid_t, const Marks&)) {
    bool has_found = false;
    std::error_code error;
    for (const auto& folder : entries_of("/proc", error)) {
      auto pid = number_in<pid_t>(folder.path().filename().native());
      if (!pid || *pid == self_ || *pid == agent_) continue;
      if (has_session_ && ::getsid(*pid) == 0) continue;
      if (!is_marked(*pid, marks_) || is_of_another_job(*pid)) continue;
      SignalTarget process(*pid);
      if (!is_marked(*pid, marks_)) continue;  // its number may have become another's before
      bool is_for_lease = signal != SIGCONT && ::getppid() == agent_;
      if (is_for_lease && is_readable(Duration::zero())) return true;
      has_found = true;
      process.send(signal);
      auto& kept = signal == SIGKILL ? killed_ : held_;
      bool is_kept = signal != SIGCONT && kept.size() < kMostAwaited;
      if (is_kept) kept.push_back(std::move(process));
    }
    return has_found || error;
  }

  const Marks& marks_;
  const Guardian::Deliver& deliver_;
  const pid_t agent_;
  // In this namespace, and so what the agent has started, too, has one: whoever has none, such as
  // the kernel's threads, of which a large machine has thousands, carries no mark.
  const bool has_session_ = ::getsid(agent_) > 0;
  const pid_t self_ = ::getpid();
  const std::string job_ = parse_slurm_job(text_of_process(self_, "cgroup"));
  MonoTime end_ = MonoTime::max();  // of the lease; while holding, of the patience
  Duration patience_{};
  bool has_stood_still_ = false;  // since the last renewal
  bool is_holding_ = false;
  bool may_be_held_;                  // by the guardian before this one, which was killed
  std::vector<SignalTarget> killed_;  // in the last round
  std::vector<SignalTarget> held_;    // by SIGSTOP
  bool has_goodbye_ = false;
  std::string last_word_;
};

[[noreturn]] void guard(int pipe, int reports, const Marks& marks, const Guardian::Deliver& deliver,
                        bool is_successor) {
  Watch watch(marks, deliver, is_successor);  // while the agent is this process's parent
  ::setsid();
  ::prctl(PR_SET_NAME, "ddp-guardian");  // `pkill ddprun` is not to find it beside the agent
  ::dup2(pipe, kPipe);  // no reader must wait for our copies of the agent's stdout and stderr
  ::dup2(reports, kReports);
  close_from(2);
  report_signals();
  unblock_signals();  // as of now they are this process's own
  (void)!::chdir("/");
  watch.run();
  ::_exit(0);
}

}  // namespace

Result<Guardian> Guardian::start(Marks marks, Deliver deliver) {
  Guardian guardian(std::move(marks), std::move(deliver));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "make the guardian's pipe");
  guardian.guardians_pipe_ = Fd(ends[0]);
  guardian.pipe_ = Fd(ends[1]);
  if (::fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0)
    return system_error(errno, "make the guardian's pipe");
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return system_error(errno, "make the guardian's pipe");
  guardian.reports_ = Fd(ends[0]);
  guardian.guardians_reports_ = Fd(ends[1]);
  (void)guardian.start_again();
  return guardian;
}

// What the former one has left of its messages.
void Guardian::drain_pipe() {
  char bytes[4096];
  pollfd polled{.fd = guardians_pipe_.get(), .events = POLLIN, .revents = 0};
  while (::poll(&polled, 1, 0) > 0 && ::read(polled.fd, bytes, sizeof bytes) > 0) {
  }
}

Result<void> Guardian::start_again() {
  drain_pipe();
  pid_ = -1;  // the former one's number may be another process's by now
  {
    // With the agent's handlers the child would write into the pipe by which these tell the agent.
    SignalsBlocked blocked;
    pid_t pid = ::fork();
    if (pid < 0) return system_error(errno, "fork the guardian");
    if (pid == 0)
      guard(guardians_pipe_.get(), guardians_reports_.get(), marks_, deliver_, is_successor_);
    pid_ = pid;
  }
  is_successor_ = true;
  (void)write(lease_);
  write_last_word();
  return {};
}

void Guardian::renew_lease(MonoTime end, Duration patience) {
  lease_end_ = end;
  lease_ = message({.kind = MessageHead::Kind::Lease,
                    .end = end.time_since_epoch().count(),
                    .patience = patience.count()});
  (void)write(lease_);
  if (owes_last_word_) write_last_word();
}

void Guardian::leave_last_word(std::string last_word) {
  if (last_word.size() > kMaxLastWord) last_word.clear();
  last_word_ = message({.kind = MessageHead::Kind::LastWord}, last_word);
  write_last_word();
}

void Guardian::write_last_word() {
  owes_last_word_ = !write(last_word_);
}

// Never waits for a guardian that stands still: false where its pipe is full.
bool Guardian::write(const std::string& message) {
  if (!pipe_ || message.empty()) return true;
  return ::write(pipe_.get(), message.data(), message.size()) >= 0;
}

// The guardian bears this process's command line: whoever looks for what has been left behind must
// not find it.
void Guardian::dismiss() {
  bool is_alive = ::waitpid(pid_, nullptr, WNOHANG) == 0;  // and is this process's child
  if (!is_alive) return;
  constexpr int kPatienceMs = 2000;  // for one that reads what stands in the kernel
  Fd pidfd = open_pidfd(pid_);
  ::kill(pid_, SIGKILL);
  pollfd polled{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  if (pidfd) (void)!::poll(&polled, 1, kPatienceMs);
  ::waitpid(pid_, nullptr, WNOHANG);
}

Guardian::~Guardian() {
  if (!pipe_) return;
  (void)write(message({.kind = MessageHead::Kind::Goodbye}));
  if (pid_ > 0) dismiss();
}

}  // namespace ddprun::process
