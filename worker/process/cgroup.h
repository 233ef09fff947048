// SPDX-License-Identifier: BSD-3-Clause
//
// A cgroup (version 2) for each worker, where the machine has delegated that part of the tree to
// this process: all that a worker starts stays in it, whatever it does, and is killed by one write,
// which no fork bomb outruns.  Where nothing is delegated, nothing of this is used.
//
// Source: Documentation/admin-guide/cgroup-v2.rst (delegation, cgroup.kill), systemd's
// CGROUP_DELEGATION.md (the extended attribute).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "store/base/error.h"

namespace ddprun::process {

// The path of this process's cgroup below the mount point, of the version 2 line in the text of
// /proc/self/cgroup.
std::optional<std::string> parse_own_cgroup(std::string_view proc_cgroup);

// The folder of this process's own cgroup, if it may have children there: it is not the root of the
// machine, and it has been delegated.  A user may write where it has; root may write everywhere, so
// there it is the mark of systemd's delegation on it or above it that counts, or that it is the
// root of a cgroup namespace, a container's.
std::optional<std::string> delegated_cgroup();

// Removes what runs of agents that live no more have left below `base`.
void remove_stale_leaves(const std::string& base);

// One worker's cgroup.  Removed with this object, as far as it is empty.  torch's managers of
// shared memory, see is_shm_manager(), are moved to `base` before: they outlive the workers a
// little.
class CgroupLeaf {
 public:
  // Makes `base`/ddprun-<pid of this process>-`name`.  Fails with the system's code.
  static Result<CgroupLeaf> create(const std::string& base, const std::string& name);

  CgroupLeaf() = default;
  CgroupLeaf(CgroupLeaf&& other) noexcept;
  CgroupLeaf& operator=(CgroupLeaf&& other) noexcept;
  ~CgroupLeaf();

  // Empty for one that is none.
  const std::string& path() const { return path_; }

  // SIGKILL to everything in it but these managers, at once.  Needs Linux 5.14; before it, nothing
  // happens here.
  void kill() const;

 private:
  explicit CgroupLeaf(std::string path) : path_(std::move(path)) {}
  void let_out_shm_managers() const;

  std::string path_;
};

}  // namespace ddprun::process
