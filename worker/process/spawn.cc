// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <system_error>

#include "store/base/signal_mask.h"
#include "store/base/text.h"
#include "worker/process/close_from.h"
#include "worker/process/pidfd.h"

namespace ddprun::process {
namespace {

// The limit of open descriptors that this process was started with.  A store raises it for itself
// (store/system_limits.h), and what is started here is to find the one that the user set.
const rlimit file_limit_at_start = [] {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit;
}();

// The signals that this process was started to ignore, as `trap '' USR1` in a script asks for.  The
// agent passes them on all the same, and a worker that has a handler hears them; another is not to
// die of them.  Those that end a run are not among them (a shell ignores SIGINT for what it starts
// with '&'), nor those that the agent ignores itself.
const std::vector<int> ignored_at_start = [] {
  std::vector<int> ignored;
  for (int signal = 1; signal < NSIG; ++signal) {
    const bool is_default = signal == SIGTERM || signal == SIGINT || signal == SIGQUIT ||
                            signal == SIGPIPE || signal == SIGXFSZ;
    if (is_default) continue;
    struct sigaction current = {};
    bool is_known = ::sigaction(signal, nullptr, &current) == 0;
    if (is_known && current.sa_handler == SIG_IGN) ignored.push_back(signal);
  }
  return ignored;
}();

// What the child needs.  Everything is prepared before, so that the child only has to exec.
struct ChildPlan {
  const char* program = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  int stdout_fd = -1;
  int stderr_fd = -1;
  const int* more_fds = nullptr;  // become kFirstOfMore, and so on; none of them is one of these
  int more_count = 0;
  const char* cgroup_file = nullptr;  // takes the pid; nullptr: stays in the caller's
  const cpu_set_t* cpus = nullptr;    // nullptr: inherited
  std::size_t cpus_bytes = 0;
  pid_t parent = -1;
  int report_fd = -1;  // takes the errno of what failed; closed by the exec
};

// In the child, the one descriptor beyond the standard streams until the exec.
constexpr int kReportFd = STDERR_FILENO + 1;
static_assert(ProcessSpec::kFirstOfMore == kReportFd + 1);

// Runs in the child, which has a copy of the parent's memory.  It does not share it, as a vfork
// does, since the parent goes on at once to start the next one.
int run_child(void* argument) {
  auto* plan = static_cast<ChildPlan*>(argument);
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan->parent) ::_exit(127);  // the agent died before the line above

  struct sigaction default_action = {};
  default_action.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &default_action, nullptr);  // the agent ignores these
  ::sigaction(SIGXFSZ, &default_action, nullptr);

  if (plan->stdout_fd >= 0 && ::dup2(plan->stdout_fd, STDOUT_FILENO) < 0) goto failed;
  if (plan->stderr_fd >= 0 && ::dup2(plan->stderr_fd, STDERR_FILENO) < 0) goto failed;
  if (plan->report_fd != kReportFd) {
    if (::dup3(plan->report_fd, kReportFd, O_CLOEXEC) < 0) goto failed;
    plan->report_fd = kReportFd;
  }
  if (plan->cgroup_file != nullptr) {
    // Whatever it refuses, the worker is as well off as without.
    int file = ::open(plan->cgroup_file, O_WRONLY | O_CLOEXEC);
    if (file >= 0) (void)!::write(file, "0", 1);
    if (file >= 0) ::close(file);
  }
  if (plan->cpus != nullptr && ::sched_setaffinity(0, plan->cpus_bytes, plan->cpus) != 0)
    goto failed;
  for (int i = 0; i < plan->more_count; ++i) {
    if (::dup2(plan->more_fds[i], ProcessSpec::kFirstOfMore + i) < 0) goto failed;
  }
  // Sockets and pipes of the agent must not live on in a worker.
  close_from(kReportFd + 1U + static_cast<unsigned>(plan->more_count));

  ::setrlimit(RLIMIT_NOFILE, &file_limit_at_start);

  {
    // Caught signals would run the agent's handlers, which write into its pipes: reset them before
    // unblocking.  exec does it only afterwards.
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction current = {};
      if (::sigaction(signal, nullptr, &current) != 0) continue;
      if (current.sa_handler == SIG_IGN || current.sa_handler == SIG_DFL) continue;
      ::sigaction(signal, &default_action, nullptr);
    }
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    for (int signal : ignored_at_start) ::sigaction(signal, &ignore, nullptr);
    unblock_signals();
  }
  ::execve(plan->program, plan->argv, plan->environment);

failed:
  int error_number = errno;
  while (::write(plan->report_fd, &error_number, sizeof(error_number)) < 0 && errno == EINTR) {
  }
  ::_exit(127);
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// A CPU mask of as many sets as the highest number needs; empty for no CPUs.
std::vector<cpu_set_t> mask_of(const std::vector<int>& cpus) {
  std::vector<cpu_set_t> mask;
  for (int cpu : cpus) {
    auto number = static_cast<std::size_t>(cpu);
    if (number / CPU_SETSIZE >= mask.size()) mask.resize(number / CPU_SETSIZE + 1);
    CPU_SET_S(number, mask.size() * sizeof(cpu_set_t), mask.data());
  }
  return mask;
}

// Copies of descriptors that are none of those which they are to become.
Result<std::vector<Fd>> out_of_the_way(const std::vector<int>& fds) {
  std::vector<Fd> copies;
  for (int fd : fds) {
    int least = ProcessSpec::kFirstOfMore + static_cast<int>(fds.size());
    Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, least));
    if (!copy) return system_error(errno, "copy a descriptor");
    copies.push_back(std::move(copy));
  }
  return copies;
}

// Makes the process that run_child() turns into a worker.
Result<Process> clone_child(ChildPlan& plan, const std::string& context) {
  constexpr std::size_t kStackBytes = 64 * 1024;
  auto stack =
      std::make_unique<std::byte[]>(kStackBytes);  // the ABI wants its end 16-byte aligned: it is
  std::byte* stack_end = stack.get() + kStackBytes;
  SignalsBlocked blocked;

  int fd = -1;
  pid_t pid = ::clone(run_child, stack_end, CLONE_PIDFD | SIGCHLD, &plan, &fd);
  if (pid >= 0) return Process{.pid = pid, .pidfd = Fd(fd)};
  if (errno != EINVAL) return system_error(errno, context);

  // An emulator of this processor (qemu-user) knows no CLONE_PIDFD.  The pid is the child's until
  // it is collected, so that a pidfd that is opened afterwards is the child's too.
  pid = ::clone(run_child, stack_end, SIGCHLD, &plan);
  if (pid < 0) return system_error(errno, context);
  Fd pidfd = open_pidfd(pid);
  if (pidfd) return Process{.pid = pid, .pidfd = std::move(pidfd)};
  int open_error = errno;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return system_error(open_error, context);
}

bool is_executable_file(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

// What a script's first line has behind #!; "" where it has none, or cannot be read.
std::string first_line_of(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char bytes[256];  // the kernel reads no more
  ssize_t count = fd ? ::read(fd.get(), bytes, sizeof bytes) : 0;
  std::string_view line(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (!line.starts_with("#!")) return "";
  line = line.substr(2, line.find('\n') == line.npos ? line.npos : line.find('\n') - 2);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return std::string(line);
}

// Why no script with this first line can be run; "" where one may be.
std::string obstacle_to_interpret(const std::string& path) {
  const std::string line = first_line_of(path);
  const std::string interpreter = line.substr(0, line.find_first_of(std::string_view(" \t\0", 3)));
  struct stat info = {};
  bool is_missing =
      !interpreter.empty() && ::stat(interpreter.c_str(), &info) != 0 && errno == ENOENT;
  // env looks for a program of that name with the carriage return, unless it splits the line.
  bool is_by_env = interpreter.ends_with("/env") && line.find(" -S") == std::string::npos;
  if (!is_missing && !(is_by_env && line.ends_with('\r'))) return "";
  if (line.ends_with('\r'))
    return "cannot be run: its first line ends with a carriage return, as Windows writes it; "
           "sed -i 's/\\r$//' makes it a script";
  return "cannot be run: its first line names " + printable(interpreter) + ", which does not exist";
}

// Why the file at this path is no program; "" for one that may be.
std::string obstacle_to_run(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0)
    return errno == ENOENT ? "does not exist"
                           : "cannot be run: " + std::system_category().message(errno);
  if (S_ISDIR(info.st_mode)) return "is a folder";
  if (::access(path.c_str(), X_OK) == 0) return obstacle_to_interpret(path);
  return "cannot be executed: " + std::system_category().message(errno) +
         "; chmod +x makes a file executable";
}

// What the child has written; nullopt: nothing, and its end is closed.
std::optional<int> error_number_in(const Fd& report) {
  int error_number = 0;
  ssize_t count = 0;
  do {
    count = ::read(report.get(), &error_number, sizeof(error_number));
  } while (count < 0 && errno == EINTR);
  return count > 0 ? std::optional(error_number) : std::nullopt;
}

}  // namespace

Result<StartingProcess> begin_spawn(const ProcessSpec& spec) {
  std::string context = "start " + spec.argv.at(0);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, context);
  Fd report(ends[0]);
  Fd report_write_end(ends[1]);

  std::vector<char*> argv = pointers_to(spec.argv);
  std::vector<char*> environment = pointers_to(spec.environment);
  std::vector<cpu_set_t> cpus = mask_of(spec.cpus);
  Result<std::vector<Fd>> more = out_of_the_way(spec.more_fds);
  if (!more) return more.error();
  std::vector<int> more_fds;
  for (const Fd& fd : *more) more_fds.push_back(fd.get());
  std::string cgroup_file = spec.cgroup + "/cgroup.procs";
  ChildPlan plan{.program = spec.argv.at(0).c_str(),
                 .argv = argv.data(),
                 .environment = environment.data(),
                 .stdout_fd = spec.stdout_fd,
                 .stderr_fd = spec.stderr_fd,
                 .more_fds = more_fds.data(),
                 .more_count = static_cast<int>(more_fds.size()),
                 .cgroup_file = spec.cgroup.empty() ? nullptr : cgroup_file.c_str(),
                 .cpus = cpus.empty() ? nullptr : cpus.data(),
                 .cpus_bytes = cpus.size() * sizeof(cpu_set_t),
                 .parent = ::getpid(),
                 .report_fd = report_write_end.get()};
  Result<Process> child = clone_child(plan, context);
  if (!child) return child.error();
  return StartingProcess{
      .process = std::move(*child), .report = std::move(report), .context = std::move(context)};
}

Result<void> report_of(const Fd& report, const std::string& context) {
  std::optional<int> error_number = error_number_in(report);
  if (!error_number) return {};  // closed by the exec
  return system_error(*error_number, context);
}

Result<void> report_of_fork(const Fd& report, const std::string& context) {
  std::optional<int> error_number = error_number_in(report);
  if (!error_number) return Error{Errc::Closed, context + ": it has ended before it began"};
  if (*error_number == 0) return {};
  return system_error(*error_number, context);
}

Result<Process> spawn(const ProcessSpec& spec) {
  Result<StartingProcess> starting = begin_spawn(spec);
  if (!starting) return starting.error();
  Result<void> started = report_of(starting->report, starting->context);
  if (started) return std::move(starting->process);
  // It never became the program: no one else may see it end.
  ::waitpid(starting->process.pid, nullptr, 0);
  return started.error();
}

void signal_group(pid_t leader, int signal) {
  if (::kill(-leader, signal) != 0) ::kill(leader, signal);
}

std::vector<std::string> to_assignments(const Environment& environment) {
  std::vector<std::string> assignments;
  assignments.reserve(environment.size());
  for (const auto& [name, value] : environment) assignments.push_back(name + "=" + value);
  return assignments;
}

std::string search_path_of(const Environment& environment) {
  auto path = environment.find("PATH");
  return path == environment.end() ? "" : path->second;
}

Result<std::string> find_program(const std::string& name, std::string_view search_path) {
  if (name.find('/') != std::string::npos) {
    std::string obstacle = obstacle_to_run(name);
    if (!obstacle.empty()) return Error{Errc::InvalidInput, "program '" + name + "' " + obstacle};
    return name;
  }
  while (!name.empty()) {
    auto colon = search_path.find(':');
    std::string folder(search_path.substr(0, colon));
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable_file(candidate)) {
      std::string obstacle = obstacle_to_interpret(candidate);
      if (obstacle.empty()) return candidate;
      return Error{Errc::InvalidInput, "program '" + candidate + "' " + obstacle};
    }
    if (colon == std::string_view::npos) break;
    search_path.remove_prefix(colon + 1);
  }
  return Error{Errc::InvalidInput, "program '" + name + "' was not found in PATH"};
}

}  // namespace ddprun::process
