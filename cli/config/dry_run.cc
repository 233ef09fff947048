// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/dry_run.h"

#include <algorithm>

namespace ddprun::cli {
namespace {

class Writer {
 public:
  explicit Writer(const ConfigBuilder& builder) : builder_(builder), config_(builder.config) {}

  std::string text() {
    const agent::WorkerGroupConfig& workers = config_.agent.workers;
    line("nnodes", builder_.text_of("nnodes", "1:1"), origin("nnodes"));
    if (config_.network) {
      const auto& rank = config_.network->member.node.node_rank;
      line("node-rank", rank ? std::to_string(*rank) : "given by the rendezvous",
           origin("node-rank"));
    }
    line("nproc-per-node", std::to_string(workers.local_world_size), origin("nproc-per-node"));
    line("rdzv-id", workers.run_id, origin("rdzv-id"));
    line("rdzv-backend", config_.agent.rdzv_backend,
         builder_.given("standalone") != nullptr ? "--standalone" : origin("rdzv-backend"));
    if (config_.network) rendezvous();
    line("max-restarts", std::to_string(config_.max_restarts), origin("max-restarts"));
    auto threads = workers.environment.find("OMP_NUM_THREADS");
    if (threads != workers.environment.end()) {
      line("OMP_NUM_THREADS", threads->second, builder_.threads_from);
    }
    std::string command;
    for (const std::string& word : workers.command) command += (command.empty() ? "" : " ") + word;
    line("command", command, "");
    for (const std::string& note : config_.notes) line("note", note, "");
    for (const std::string& warning : config_.warnings) line("warning", warning, "");
    return std::move(text_);
  }

 private:
  void rendezvous() {
    const rendezvous::NetworkConfig& network = *config_.network;
    const char* option =
        builder_.given("rdzv-endpoint") != nullptr ? "rdzv-endpoint" : "master-addr";
    bool is_by_registry = !network.host_folder.empty() || network.etcd;
    std::string place = is_by_registry ? network.member.endpoint : to_string(network.endpoint);
    for (std::uint16_t port : network.other_ports) place += ", " + std::to_string(port);
    line("endpoint", place, origin(option));
    line("hosted",
         is_by_registry     ? network.may_stand_in
                                  ? "by the first agent that writes itself down there; " +
                                    network.endpoint.host + " if it is this one"
                                  : "by another agent that writes itself down there"
         : !network.is_host ? "by the first agent there that can bind it"
         : *network.is_host ? "by this node"
                            : "by another node",
         "");
    if (network.etcd) {
      line("etcd",
           std::string(network.etcd->uses_tls ? "https" : "http") +
               (network.etcd->user.empty() ? "" : ", user " + network.etcd->user) + ", keys " +
               network.etcd->prefix + "/{host,file,alive}/" + network.member.run,
           origin("rdzv-conf"));
    }
    line("rdzv-auth",
         network.secret               ? "by the secret"
         : !network.munge             ? "none"
         : network.munge->is_required ? "by MUNGE"
                                      : "by MUNGE, if it answers",
         origin("rdzv-auth"));
  }

  std::string origin(const char* name) const {
    const OptionValue* value = builder_.given(name);
    return value != nullptr ? value->origin : "default";
  }

  void line(std::string name, const std::string& value, const std::string& from) {
    constexpr std::size_t kColumn = 17;
    name.resize(std::max(kColumn, name.size() + 1), ' ');
    text_ += name + value + (from.empty() ? "" : "  (" + from + ")") + "\n";
  }

  const ConfigBuilder& builder_;
  const LaunchConfig& config_;
  std::string text_;
};

}  // namespace

std::string dry_run_text(const ConfigBuilder& builder) {
  return Writer(builder).text();
}

}  // namespace ddprun::cli
