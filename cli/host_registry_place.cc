// SPDX-License-Identifier: BSD-3-Clause
#include "cli/host_registry_place.h"

#include <functional>
#include <string>
#include <utility>

#include "rendezvous/host_files.h"

namespace ddprun::cli {

std::unique_ptr<rendezvous::HostRegistry> make_host_registry(
    boost::asio::any_io_executor executor, const rendezvous::NetworkConfig& network,
    process::IoThread& disk) {
  if (network.host_folder.empty()) return nullptr;
  rendezvous::HostFilesConfig config{.folder = network.host_folder,
                                     .run = network.member.run,
                                     .node = network.member.name,
                                     .on_disk = {}};
  config.on_disk = [&disk](std::string what, std::function<void()> work,
                           std::function<void()> done) {
    disk.run(std::move(what), std::move(work), std::move(done));
  };
  return std::make_unique<rendezvous::HostFiles>(executor, std::move(config));
}

}  // namespace ddprun::cli
