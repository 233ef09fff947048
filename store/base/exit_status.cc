// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/exit_status.h"

#include <csignal>
#include <string_view>

namespace ddprun::process {
namespace {

struct NamedSignal {
  int number;
  std::string_view name;
};

// What sigabbrev_np() gives, which glibc has only since 2.32.
constexpr NamedSignal kSignals[] = {
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"},
    {SIGPOLL, "SIGPOLL"}, {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},
};

}  // namespace

std::string signal_name(int signal) {
  for (const NamedSignal& known : kSignals) {
    if (known.number == signal) return std::string(known.name);
  }
  return "signal " + std::to_string(signal);
}

std::optional<int> signal_number(std::string_view name) {
  for (const NamedSignal& known : kSignals) {
    if (known.name == name) return known.number;
  }
  return std::nullopt;
}

std::string to_string(const ExitStatus& status) {
  if (status.signal == 0) return "exited with code " + std::to_string(status.exit_code);
  return "was killed by " + signal_name(status.signal) +
         (status.core_dumped ? " (core dumped)" : "");
}

}  // namespace ddprun::process
