// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <utility>
#include <vector>

#include "store/base/fd.h"
#include "store/base/folder.h"
#include "store/base/number.h"
#include "worker/process/proc_files.h"
#include "worker/process/text_file.h"

namespace ddprun::process {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ddprun-";

std::string text_of(const std::string& path) {
  return text_of_file(path).value_or("");
}

// Where version 2 is mounted: alone, or beside version 1.
std::string mount_point() {
  std::error_code error;
  for (const char* path : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    if (fs::exists(std::string(path) + "/cgroup.procs", error) &&
        fs::exists(std::string(path) + "/cgroup.controllers", error))
      return path;
  }
  return "";
}

bool is_marked(const std::string& folder) {
  char value = 0;
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    if (::getxattr(folder.c_str(), name, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

// On it, or on one above it.
bool is_marked_up_to(const std::string& mount, std::string path) {
  while (path.size() > 1) {
    if (is_marked(mount + path)) return true;
    path.resize(path.rfind('/'));
  }
  return false;
}

// A cgroup with its empty children.
void remove_tree(const std::string& path) {
  std::error_code error;
  for (const auto& entry : entries_of(path, error)) {
    if (entry.is_directory(error)) remove_tree(entry.path());
  }
  ::rmdir(path.c_str());
}

void write_file(const std::string& path, const std::string& text) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file) (void)!::write(file.get(), text.data(), text.size());
}

// The agent's pid in the name of a leaf; 0 for another name.
pid_t agent_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  return leading_number<pid_t>(std::string_view(name).substr(kPrefix.size())).value_or(0);
}

}  // namespace

std::optional<std::string> parse_own_cgroup(std::string_view proc_cgroup) {
  while (!proc_cgroup.empty()) {
    auto end = proc_cgroup.find('\n');
    std::string_view line = proc_cgroup.substr(0, end);
    if (line.starts_with("0::/")) return std::string(line.substr(3));
    if (end == std::string_view::npos) break;
    proc_cgroup.remove_prefix(end + 1);
  }
  return std::nullopt;
}

std::optional<std::string> delegated_cgroup() {
  std::string mount = mount_point();
  auto path = parse_own_cgroup(text_of("/proc/self/cgroup"));
  if (mount.empty() || !path) return std::nullopt;
  std::string folder = *path == "/" ? mount : mount + *path;
  // The root of the machine has no type; a threaded cgroup takes no processes.
  if (!text_of(folder + "/cgroup.type").starts_with("domain")) return std::nullopt;
  if (::access(folder.c_str(), W_OK) != 0 ||
      ::access((folder + "/cgroup.procs").c_str(), W_OK) != 0)
    return std::nullopt;
  bool is_delegated = ::geteuid() != 0 || *path == "/" || is_marked_up_to(mount, *path);
  return is_delegated ? std::optional(folder) : std::nullopt;
}

void remove_stale_leaves(const std::string& base) {
  std::error_code error;
  std::vector<std::string> stale;
  for (const auto& entry : entries_of(base, error)) {
    pid_t agent = agent_of(entry.path().filename());
    bool is_gone = agent > 0 && ::kill(agent, 0) != 0 && errno == ESRCH;
    if (is_gone || agent == ::getpid()) stale.push_back(entry.path());
  }
  for (const std::string& path : stale) remove_tree(path);
}

Result<CgroupLeaf> CgroupLeaf::create(const std::string& base, const std::string& name) {
  std::string path = base + "/" + std::string(kPrefix) + std::to_string(::getpid()) + "-" + name;
  if (::mkdir(path.c_str(), 0755) != 0) return system_error(errno, "make the cgroup " + path);
  return CgroupLeaf(std::move(path));
}

CgroupLeaf::CgroupLeaf(CgroupLeaf&& other) noexcept : path_(std::exchange(other.path_, "")) {}

CgroupLeaf& CgroupLeaf::operator=(CgroupLeaf&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

CgroupLeaf::~CgroupLeaf() {
  if (path_.empty()) return;
  let_out_shm_managers();
  remove_tree(path_);
}

void CgroupLeaf::kill() const {
  if (path_.empty()) return;
  let_out_shm_managers();
  write_file(path_ + "/cgroup.kill", "1");
}

void CgroupLeaf::let_out_shm_managers() const {
  std::istringstream members(text_of(path_ + "/cgroup.procs"));
  for (pid_t pid = 0; members >> pid;) {
    if (is_shm_manager(program_name_of(pid)))
      write_file(fs::path(path_).parent_path() / "cgroup.procs", std::to_string(pid));
  }
}

}  // namespace ddprun::process
