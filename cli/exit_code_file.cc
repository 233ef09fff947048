// SPDX-License-Identifier: BSD-3-Clause
#include "cli/exit_code_file.h"

#include <unistd.h>

#include "cli/output_file.h"

namespace ddprun::cli {

std::string take_exit_code_path(Environment& environment) {
  auto folder = environment.extract("DDPRUN_EXIT_CODE_FOLDER");
  auto node = environment.find("SLURMD_NODENAME");
  if (folder.empty() || node == environment.end()) return "";
  bool is_name = !node->second.empty() && node->second.find('/') == std::string::npos;
  if (folder.mapped().empty() || !is_name) return "";
  return folder.mapped() + "/" + node->second;
}

void write_exit_code(const std::string& path, int exit_code) {
  constexpr mode_t kOwnersOnly = 0600;
  Result<Fd> file = open_output(path, OutputMode::Replace, kOwnersOnly, path);
  if (!file) return;
  std::string text = std::to_string(exit_code) + "\n";
  [[maybe_unused]] ssize_t written = ::write(file->get(), text.data(), text.size());
}

}  // namespace ddprun::cli
