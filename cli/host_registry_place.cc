// SPDX-License-Identifier: BSD-3-Clause
#include "cli/host_registry_place.h"

#include <functional>
#include <string>
#include <utility>

#include "rendezvous/host_etcd.h"
#include "rendezvous/host_files.h"

namespace ddprun::cli {
namespace {

rendezvous::EtcdPlace etcd_place(const rendezvous::EtcdUse& etcd, Duration lease) {
  rendezvous::EtcdPlace place{
      .client = {.members = etcd.members, .tls = {}, .user = etcd.user, .password = etcd.password},
      .prefix = etcd.prefix,
      .lease = lease};
  if (etcd.uses_tls) {
    place.client.tls =
        rendezvous::etcd::TlsFiles{.ca = etcd.ca, .certificate = etcd.certificate, .key = etcd.key};
  }
  return place;
}

}  // namespace

std::unique_ptr<rendezvous::HostRegistry> make_host_registry(
    boost::asio::any_io_executor executor, const rendezvous::NetworkConfig& network,
    process::IoThread& disk) {
  if (network.etcd) {
    return std::make_unique<rendezvous::EtcdRegistry>(
        executor, etcd_place(*network.etcd, network.member.node.policy.lease()),
        network.member.run);
  }
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
