// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace ddprun::test {

// A cgroup of version 2 that this test has made, as a delegation would be; empty where that cannot
// be done.
struct BaseCgroup {
  std::string path;
  BaseCgroup() {
    for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
      std::string folder = mount + ("/ddprun-test-" + std::to_string(::getpid()));
      std::error_code error;
      if (!std::filesystem::exists(std::string(mount) + "/cgroup.procs", error)) continue;
      if (std::filesystem::create_directory(folder, error)) path = folder;
    }
  }
  ~BaseCgroup() {
    std::error_code error;
    if (!path.empty()) std::filesystem::remove(path, error);
  }
  // If not, says that the test is skipped.
  bool is_there() const {
    if (path.empty()) MESSAGE("skipped: no cgroup of version 2 can be made here");
    return !path.empty();
  }
  bool has_leaf(const std::string& name) const {
    return std::filesystem::exists(path + "/ddprun-" + std::to_string(::getpid()) + "-" + name);
  }
};

}  // namespace ddprun::test
