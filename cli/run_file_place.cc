// SPDX-License-Identifier: BSD-3-Clause
#include "cli/run_file_place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace ddprun::cli {

rendezvous::RunFilePlace run_file_place(const std::string& given, const Environment& environment,
                                        process::IoThread& disk) {
  rendezvous::RunFilePlace place;
  place.run = [&disk](std::string what, std::function<void()> work, std::function<void()> done) {
    disk.run(std::move(what), std::move(work), std::move(done));
  };
  if (!given.empty()) {
    place.folders.push_back(given);
    return place;
  }
  auto runtime = environment.find("XDG_RUNTIME_DIR");
  bool has_runtime = runtime != environment.end() && runtime->second.starts_with('/');
  if (has_runtime) place.folders.push_back(runtime->second + "/ddprun");
  if (::geteuid() == 0) place.folders.emplace_back("/run/ddprun");
  place.folders.push_back("/tmp/ddprun-" + std::to_string(::geteuid()));
  // Two network namespaces of one machine may have hosts at the same address.
  struct stat space {};
  if (::stat("/proc/self/ns/net", &space) == 0)
    place.prefix = "net" + std::to_string(space.st_ino) + "-";
  return place;
}

std::string node_file_folder() {
  return "/dev/shm/ddprun-" + std::to_string(::geteuid());
}

}  // namespace ddprun::cli
