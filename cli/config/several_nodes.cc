// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/several_nodes.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/config/etcd_options.h"
#include "cli/config/own_address.h"
#include "cli/options/parse.h"
#include "store/base/seconds.h"
#include "store/base/text.h"

namespace ddprun::cli {
namespace {

constexpr std::size_t kMaxNameBytes = 256;
constexpr int kAny = std::numeric_limits<int>::max();

class SeveralNodes {
 public:
  SeveralNodes(ConfigBuilder& builder, EndpointOptions& endpoints, const std::string& backend,
               const RdzvConf& conf, NodeKeys keys)
      : builder_(builder),
        endpoints_(endpoints),
        backend_(backend),
        conf_(conf),
        keys_(std::move(keys)) {}

  Result<void> build() {
    if (conf_.policy.quorum > max_nodes_) {
      return invalid(endpoints_.conf()->origin + ": quorum=" + std::to_string(conf_.policy.quorum) +
                     ": with at most " + std::to_string(max_nodes_) + " nodes it is 1.." +
                     std::to_string(max_nodes_));
    }
    for (const char* name : {"rdzv-id", "role"}) {
      const OptionValue* value = builder_.given(name);
      if (value == nullptr) continue;
      const std::string& text = value->text;
      if (text.empty() || text.size() > kMaxNameBytes || printable(text) != text) {
        return invalid_value(
            *value, "a printable name of 1 to " + std::to_string(kMaxNameBytes) + " bytes");
      }
    }
    config().network.emplace();
    rendezvous::member::NodeConfig& node = member().node;
    node.host = builder_.slurm.node_name;
    if (node.host.empty()) node.host = builder_.machine.hostname();
    node.participant = config().self;
    node.settings = {.min_nodes = min_nodes_, .max_nodes = max_nodes_};
    node.policy = conf_.policy;
    member().stop_grace = config().agent.core.stop_grace;
    node.policy.max_restarts = config().max_restarts;
    member().run = builder_.workers().run_id;
    member().name = node.host + "-" + builder_.machine.random_id();
    member().read_timeout = conf_.read_timeout;
    network().is_host = conf_.is_host;
    // An allocation is there for its own run.
    if (!builder_.inherited("SLURM_JOB_ID").empty())
      network().patience_with_others = std::chrono::seconds(10);
    network().secret = std::move(keys_.secret);
    network().munge = std::move(keys_.munge);
    for (auto part : {&SeveralNodes::node_rank,
                      backend_ == "static" ? &SeveralNodes::static_rendezvous
                      : is_etcd()          ? &SeveralNodes::etcd_rendezvous
                                           : &SeveralNodes::c10d_rendezvous,
                      &SeveralNodes::allowed_connections}) {
      Result<void> done = (this->*part)();
      if (!done) return done;
    }
    Result<void> connectable = check_connectable(network().endpoint);
    if (!connectable) return connectable;
    add_slurm_rendezvous();
    if (const OptionValue* bind = builder_.given("bind")) {
      Result<void> listens = check_bind(*bind, network(), builder_.machine);
      if (!listens) return listens;
    }
    member().endpoint = place_name();
    if (lacks_node_rank() && builder_.slurm.node_of_step > 0) {
      member().node.node_rank.reset();  // node 0 is another one
      return builder_.preflight_failure(
          "on several nodes the static backend needs --node-rank (srun bash -c 'ddprun "
          "--node-rank=$SLURM_NODEID ...'); --rdzv-backend=c10d needs none");
    }
    if (!is_etcd() && is_loopback_host(network().endpoint.host) &&
        endpoints_.endpoint() == nullptr && builder_.given("master-addr") == nullptr) {
      builder_.note(
          "the rendezvous is at " + member().endpoint + ", so all nodes must be on this machine; " +
          (backend_ == "static" ? "--master-addr" : "--rdzv-endpoint") + " names another place");
    }
    return {};
  }

 private:
  LaunchConfig& config() { return builder_.config; }
  rendezvous::NetworkConfig& network() { return *config().network; }
  rendezvous::member::Config& member() { return network().member; }
  bool is_etcd() const { return EtcdOptions::is_backend(backend_); }

  std::string place_name() {
    if (network().etcd) return to_string(*network().etcd);
    if (!network().host_folder.empty()) return std::string(kFolder) + network().host_folder;
    if (!member().may_move()) return to_string(network().endpoint);
    std::string names;
    for (const Endpoint& each : member().node.settings.endpoints)
      names += (names.empty() ? "" : ",") + to_string(each);
    return names;
  }

  // The first node of the step hosts, whatever names it goes by, and the others only look for it.
  void add_slurm_rendezvous() {
    if (!builder_.slurm.rendezvous) return;
    const SlurmRendezvous& slurm = *builder_.slurm.rendezvous;
    network().expected_nodes = slurm.expected_nodes;
    network().other_ports.assign(slurm.ports.begin() + 1, slurm.ports.end());
    if (!conf_.is_host) network().is_host = slurm.is_host;
    member().is_spare = slurm.is_spare;
    std::string& address = member().node.address;
    bool is_ours = slurm.is_host && builder_.given("local-addr") == nullptr;
    if (!is_ours) return;
    std::string instead = builder_.machine.address_instead_of(network().endpoint.host);
    if (instead.empty()) return;
    builder_.note("this machine does not know its own name " + network().endpoint.host +
                  ", so the others are given its address " + instead +
                  "; --local-addr names another");
    address = std::move(instead);
  }

  bool lacks_node_rank() const {
    return backend_ == "static" && builder_.given("node-rank") == nullptr && !conf_.rank;
  }

  Result<void> node_rank() {
    const OptionValue* value = builder_.given("node-rank");
    if (value == nullptr && backend_ != "static") return {};
    int rank = conf_.rank.value_or(0);
    if (lacks_node_rank()) {
      builder_.note("no --node-rank is given, so this is node 0 of " + std::to_string(max_nodes_));
    }
    if (value != nullptr) {
      Result<int> parsed = parse_whole(*value, 0, kAny);
      if (!parsed) return parsed.error();
      rank = *parsed;
      if (rank >= max_nodes_) {
        return invalid(value->origin + "=" + value->text + ": with at most " +
                       std::to_string(max_nodes_) + " nodes it is 0.." +
                       std::to_string(max_nodes_ - 1));
      }
    }
    member().node.node_rank = rank;
    return {};
  }

  // The rendezvous and the workers share the one address that the user gave, so that one port in a
  // firewall is enough.
  Result<void> static_rendezvous() {
    if (min_nodes_ != max_nodes_) {
      return invalid("--nnodes=" + std::to_string(min_nodes_) + ":" + std::to_string(max_nodes_) +
                     ": the static backend has a fixed number of nodes; use "
                     "--rdzv-backend=c10d for a range");
    }
    endpoints_.note_no_effect("the static backend", {"local-addr"});
    Result<Endpoint> master = endpoints_.static_endpoint(kStaticPort);
    if (!master) return master.error();
    member().node.settings.master = *master;
    member().node.address = master->host;
    network().endpoint = std::move(*master);
    return {};
  }

  // Who hosts is written down in a folder: "file:/shared/run1", or a path with store_type=file.
  bool is_by_folder() const { return conf_.store_type || endpoints_.is_folder(); }

  Result<void> rendezvous_by_folder() {
    const OptionValue* endpoint = endpoints_.endpoint();
    if (endpoint == nullptr) {
      return invalid(conf_.store_type->origin +
                     "=file needs a folder that all nodes share: "
                     "--rdzv-endpoint=file:/PATH");
    }
    std::string path = endpoint->text;
    if (path.starts_with("file:///")) path.erase(0, std::string_view("file://").size());
    if (path.starts_with(kFolder)) path.erase(0, kFolder.size());
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const std::string what = endpoint->origin + "=" + endpoint->text;
    if (!path.starts_with('/') || path.starts_with("//")) {  // the latter names a host
      return invalid(what + ": the path of a folder that all nodes share begins with /");
    }
    Result<void> checked = builder_.machine.host_folder(path);
    if (!checked && checked.error().code == Errc::InvalidInput)
      return invalid(what + ": " + checked.error().context);
    if (!checked) {
      builder_.note(to_string(checked.error()) + "; the host is looked for there for at most " +
                    seconds_text(member().patience(/*had_round=*/false)));
    }
    network().host_folder = std::move(path);
    return host_by_registry("a folder");
  }

  Result<void> etcd_rendezvous() {
    endpoints_.note_no_effect("the " + backend_ + " backend", {"master-addr", "master-port"});
    Result<std::string> address = endpoints_.local_address("");
    if (!address) return address.error();
    member().node.address = std::move(*address);
    if (conf_.store_type) builder_.note(conf_.store_type->origin + " has no effect with etcd");
    Result<rendezvous::EtcdUse> etcd =
        conf_.etcd.build(endpoints_.endpoint(), builder_.machine, config().notes);
    if (!etcd) return etcd.error();
    network().etcd = std::move(*etcd);
    return host_by_registry("etcd");
  }

  // The first agent that is written down hosts, at an address of its own machine.
  Result<void> host_by_registry(const std::string& what) {
    const OptionValue* bind = builder_.given("bind");
    std::string& address = member().node.address;
    std::string host = address;
    bool is_bound = bind != nullptr && bind->text != "0.0.0.0" && bind->text != "::";
    if (host.empty() && is_bound) host = bind->text;
    if (host.empty()) host = builder_.machine.own_address();
    if (is_loopback_host(host)) {
      builder_.note("the other nodes are told the address " + host +
                    " of this one, so all nodes must be on this machine; --local-addr names "
                    "another");
    }
    if (conf_.is_host && *conf_.is_host)
      builder_.note("is_host=1 has no effect with " + what + ": the first node that writes hosts");
    network().endpoint = {.host = std::move(host), .port = 0};
    network().may_stand_in = conf_.is_host.value_or(true);
    member().has_registry = true;
    return {};
  }

  Result<void> c10d_rendezvous() {
    endpoints_.note_no_effect("the c10d backend", {"master-addr", "master-port"});
    Result<std::string> address = endpoints_.local_address("");
    if (!address) return address.error();
    member().node.address = std::move(*address);
    if (is_by_folder()) return rendezvous_by_folder();
    network().endpoint = {.host = "localhost", .port = kElasticPort};
    if (const OptionValue* endpoint = endpoints_.endpoint()) {
      Result<std::vector<Endpoint>> parsed = endpoints_.c10d_endpoints(*endpoint);
      if (!parsed) return parsed.error();
      for (const Endpoint& each : *parsed) {
        Result<void> connectable = check_connectable(each);
        if (!connectable) return connectable;
      }
      network().endpoint = parsed->front();
      if (parsed->size() > 1) return several_endpoints(std::move(*parsed));
    }
    network().may_stand_in = conf_.is_host.value_or(true);
    return {};
  }

  // At each of them is a ddpd: two agents that host could both begin the run.
  Result<void> several_endpoints(std::vector<Endpoint> endpoints) {
    if (conf_.is_host && *conf_.is_host) {
      return invalid(
          "is_host=1 does not go with several endpoints: a ddpd is to be at each of them; name one "
          "endpoint where an agent is to host");
    }
    endpoints_.note_no_effect("several endpoints, where no agent hosts", {"bind", "allow"});
    network().is_host = false;
    member().node.settings.endpoints = std::move(endpoints);
    return {};
  }

  static Result<void> check_connectable(const Endpoint& endpoint) {
    if (endpoint.host != "0.0.0.0" && endpoint.host != "::") return {};
    return invalid(to_string(endpoint) +
                   " is no address to connect to: it stands for all "
                   "addresses of a machine; name one of them, or its host name");
  }

  Result<void> allowed_connections() {
    const OptionValue* bind = builder_.given("bind");
    if (bind != nullptr) {
      if (bind->text != "localhost" && !is_numeric_host(bind->text))
        return invalid_value(*bind, "a numeric address, or localhost");
      network().bind = bind->text;
    }
    return read_ranges(builder_, "allow", network().allow);
  }

  ConfigBuilder& builder_;
  EndpointOptions& endpoints_;
  const std::string& backend_;
  const RdzvConf& conf_;
  NodeKeys keys_;
  const int min_nodes_ = builder_.nnodes.first;
  const int max_nodes_ = builder_.nnodes.second;
};

}  // namespace

Result<void> add_several_nodes(ConfigBuilder& builder, EndpointOptions& endpoints,
                               const std::string& backend, const RdzvConf& conf, NodeKeys keys) {
  return SeveralNodes(builder, endpoints, backend, conf, std::move(keys)).build();
}

}  // namespace ddprun::cli
