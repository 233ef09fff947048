// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddprun::process {

// How a process ended: by exit (signal is 0) or by a signal.
struct ExitStatus {
  int exit_code = 0;
  int signal = 0;
  bool core_dumped = false;

  bool is_success() const { return exit_code == 0 && signal == 0; }
  // The code a shell would show: the exit code, or 128 + the signal's number.
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }

  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

// "exited with code 9", "was killed by SIGSEGV (core dumped)".
std::string to_string(const ExitStatus& status);

// "SIGTERM"; "signal 99" for a number without a name.
std::string signal_name(int signal);

// The number of "SIGTERM"; nullopt for a word that signal_name() gives for no signal.
std::optional<int> signal_number(std::string_view name);

}  // namespace ddprun::process
