// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/munge.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

namespace ddprun::cli {

std::string munge_socket(const std::optional<std::string>& slurm_conf) {
  constexpr std::string_view kKey = "authinfo=";
  constexpr std::string_view kSocket = "socket=";
  std::string socket;
  std::istringstream lines(slurm_conf.value_or(""));
  for (std::string line; std::getline(lines, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    std::erase_if(line, [](unsigned char c) { return std::isspace(c) != 0; });
    bool is_it = line.size() >= kKey.size() &&
                 std::equal(kKey.begin(), kKey.end(), line.begin(),
                            [](char key, unsigned char c) { return key == std::tolower(c); });
    if (!is_it) continue;
    std::istringstream settings(line.substr(kKey.size()));
    for (std::string setting; std::getline(settings, setting, ',');)
      if (setting.starts_with(kSocket)) socket = setting.substr(kSocket.size());
  }
  return socket;
}

}  // namespace ddprun::cli
