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
#include <fstream>
#include <random>

namespace ddprun::process {
namespace {

constexpr int kRounds = 1000;          // of killing, until nothing carries the mark any more
constexpr useconds_t kPause = 10'000;  // between rounds; microseconds

// Whether the environment that `pid` was started with has `assignment` in it.  Not so for a zombie.
bool carries(const std::string& pid, const std::string& assignment) {
  std::ifstream file("/proc/" + pid + "/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry == assignment) return true;
  }
  return false;
}

bool kill_marked(const std::string& assignment) {
  bool found = false;
  std::error_code error;
  for (const auto& folder : std::filesystem::directory_iterator("/proc", error)) {
    std::string pid = folder.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos || !carries(pid, assignment))
      continue;
    found = true;
    ::kill(std::stoi(pid), SIGKILL);
  }
  return found;
}

// The guardian's life.
[[noreturn]] void guard(int pipe, const std::string& mark) {
  ::setsid();
  ::prctl(PR_SET_NAME, "ddprun-guardian");
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2})
    ::signal(signal, SIG_IGN);
  ::dup2(pipe, 0);  // nobody must wait for our copies of the agent's stdout and stderr to close
  ::syscall(SYS_close_range, 1U, UINT_MAX, 0U);
  (void)!::chdir("/");

  char word = 0;
  ssize_t count = 0;
  do {
    count = ::read(0, &word, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 0) {
    std::string assignment = std::string(kGuardianVariable) + "=" + mark;
    for (int round = 0; round < kRounds && kill_marked(assignment); ++round) ::usleep(kPause);
  }
  ::_exit(0);
}

}  // namespace

Result<Guardian> Guardian::start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "make the guardian's pipe");
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  std::string mark = std::to_string(::getpid()) + "-" + std::to_string(std::random_device()());
  pid_t pid = ::fork();
  if (pid < 0) return system_error(errno, "fork the guardian");
  if (pid == 0) {
    write_end = Fd();
    guard(read_end.get(), mark);
  }
  return Guardian(std::move(mark), std::move(write_end), pid);
}

Guardian::~Guardian() {
  if (pipe_) (void)!::write(pipe_.get(), "x", 1);
}

}  // namespace ddprun::process
