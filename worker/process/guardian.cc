// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <filesystem>
#include <random>

#include "store/base/number.h"
#include "worker/process/text_file.h"

namespace ddprun::process {
namespace {

constexpr int kRounds = 1000;          // of killing, until nothing carries the mark any more
constexpr useconds_t kPause = 10'000;  // between rounds; microseconds

// What a marked process is known by.
struct Marks {
  std::string name;                          // in DDPRUN_AGENT
  std::optional<std::uint64_t> queue_limit;  // nullopt: this system does not let us set one
};

std::string text_of(const std::string& pid, const char* file_name) {
  return text_of_file("/proc/" + pid + "/" + file_name).value_or("");
}

bool is_zombie(const std::string& pid) {
  std::string stat = text_of(pid, "stat");
  auto close = stat.rfind(')');
  return close == std::string::npos || close + 2 >= stat.size() || stat[close + 2] == 'Z';
}

// A zombie has no environment, but limits.
bool carries(const std::string& pid, const Marks& marks) {
  if (has_mark(text_of(pid, "environ"), marks.name)) return true;
  return marks.queue_limit && parse_queue_limit(text_of(pid, "limits")) == marks.queue_limit &&
         !is_zombie(pid);
}

bool kill_marked(const Marks& marks) {
  bool found = false;
  std::error_code error;
  const std::string self = std::to_string(::getpid());
  for (const auto& folder : std::filesystem::directory_iterator("/proc", error)) {
    std::string pid = folder.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == self ||
        !carries(pid, marks))
      continue;
    found = true;
    ::kill(std::stoi(pid), SIGKILL);
  }
  return found;
}

// Lowers the soft limit by a random number that no other agent is likely to have.
std::optional<std::uint64_t> mark_limit(std::uint64_t random) {
  constexpr std::uint64_t kLeast = 65536;     // what remains must be of use to somebody
  constexpr std::uint64_t kHuge = 1U << 31U;  // in the place of no limit
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_MSGQUEUE, &limit) != 0) return std::nullopt;
  std::uint64_t before = limit.rlim_cur == RLIM_INFINITY ? kHuge : limit.rlim_cur;
  if (before < 2 * kLeast) return std::nullopt;
  limit.rlim_cur = before - 1 - random % (before - kLeast);
  if (::setrlimit(RLIMIT_MSGQUEUE, &limit) != 0) return std::nullopt;
  return limit.rlim_cur;
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

// The guardian's life.
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
  if (count == 0) {
    for (int round = 0; round < kRounds && kill_marked(marks); ++round) ::usleep(kPause);
  }
  ::_exit(0);
}

bool is_listed(std::string_view list, std::string_view mark) {
  for (;;) {
    auto comma = list.find(',');
    if (list.substr(0, comma) == mark) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<Guardian> Guardian::start(const std::string& inherited) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "make the guardian's pipe");
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return system_error(errno, "make the guardian's pipe");
  Fd reports_read(ends[0]);
  Fd reports_write(ends[1]);
  std::random_device random;
  Marks marks{.name = std::to_string(::getpid()) + "-" + std::to_string(random())};
  if (inherited.empty()) marks.queue_limit = mark_limit(random());
  pid_t pid = ::fork();
  if (pid < 0) return system_error(errno, "fork the guardian");
  if (pid == 0) {
    write_end = Fd();
    guard(read_end.get(), reports_write.get(), marks);
  }
  std::string variable = inherited.empty() ? marks.name : inherited + "," + marks.name;
  return Guardian(std::move(variable), std::move(write_end), std::move(reports_read), pid);
}

Guardian::~Guardian() {
  if (pipe_) (void)!::write(pipe_.get(), "x", 1);
}

bool has_mark(std::string_view environ, std::string_view mark) {
  const std::string_view name = kGuardianVariable;
  while (!environ.empty()) {
    auto end = environ.find('\0');
    std::string_view entry = environ.substr(0, end);
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('='))
      return is_listed(entry.substr(name.size() + 1), mark);
    if (end == std::string_view::npos) break;
    environ.remove_prefix(end + 1);
  }
  return false;
}

std::optional<std::uint64_t> parse_queue_limit(std::string_view limits) {
  constexpr std::string_view kName = "Max msgqueue size";
  auto found = limits.find(kName);
  if (found == std::string_view::npos) return std::nullopt;
  limits.remove_prefix(found + kName.size());
  limits.remove_prefix(std::min(limits.find_first_not_of(' '), limits.size()));
  return leading_number<std::uint64_t>(limits);
}

}  // namespace ddprun::process
