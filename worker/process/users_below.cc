// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/users_below.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>

#include "worker/process/proc_files.h"

namespace ddprun::process {
namespace {

constexpr Duration kValidity = std::chrono::seconds(1);
constexpr std::size_t kRemembered = 64;

// What files and sockets of the process belong to.
std::optional<uid_t> user_of(pid_t pid) {
  std::string status = text_of_process(pid, "status");
  const std::string label = "\nUid:";
  auto line = status.find(label);
  if (line == std::string::npos) return std::nullopt;
  std::istringstream fields(status.substr(line + label.size()));
  uid_t real = 0;
  uid_t effective = 0;
  uid_t saved = 0;
  uid_t of_files = 0;
  if (!(fields >> real >> effective >> saved >> of_files)) return std::nullopt;
  return of_files;
}

}  // namespace

bool UsersBelow::have(uid_t user, MonoTime now) {
  auto known = looks_.find(user);
  if (known != looks_.end() && now < known->second.at + kValidity) return known->second.has_found;
  if (looks_.size() >= kRemembered) looks_.clear();
  Look& look = looks_[user];
  look.at = now;
  look.has_found = std::ranges::any_of(descendants(*scope_), [user](const Leftover& process) {
    return user_of(process.pid) == user;
  });
  return look.has_found;
}

}  // namespace ddprun::process
