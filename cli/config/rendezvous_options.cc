// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/rendezvous_options.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/config/endpoint_list.h"
#include "cli/config/etcd_options.h"
#include "cli/config/node_keys.h"
#include "cli/config/own_address.h"
#include "cli/options/parse.h"
#include "store/base/seconds.h"
#include "store/base/text.h"

namespace ddprun::cli {
namespace {

constexpr std::uint16_t kStaticPort = 29500;  // torchrun's
constexpr std::uint16_t kElasticPort = 29400;
constexpr std::size_t kMaxNameBytes = 256;
constexpr std::string_view kFolder = "file:";
constexpr int kAny = std::numeric_limits<int>::max();

// torchrun wants an IPv6 address as "[::1]" where it stands alone, too.
std::string without_brackets(const std::string& host) {
  bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has_brackets ? host.substr(1, host.size() - 2) : host;
}

class RendezvousOptions {
 public:
  explicit RendezvousOptions(ConfigBuilder& builder) : builder_(builder) {}

  Result<void> build() {
    builder_.workers().run_id = builder_.text_of("rdzv-id", "none");
    backend_ = builder_.text_of("rdzv-backend", "static");
    bool is_standalone = builder_.given("standalone") != nullptr;
    builder_.config.agent.rdzv_backend = is_standalone ? "c10d" : backend_;
    bool is_known = backend_ == "static" || backend_ == "c10d" || is_etcd();
    if (!is_standalone && !is_known) {
      return invalid_value(*builder_.given("rdzv-backend"), "static, c10d, etcd or etcd-v2");
    }
    Result<void> checked = read_settings();
    if (!checked) return checked;
    Result<void> access = worker_store_access();
    if (!access) return access;
    Result<NodeKeys> keys = read_node_keys(builder_);
    if (!keys) return keys.error();
    keys_ = std::move(*keys);
    if (max_nodes_ > 1) {
      if (is_standalone) {
        return invalid("--standalone is for one node; it does not go with " +
                       builder_.given("nnodes")->origin + "=" + builder_.given("nnodes")->text);
      }
      note_no_effect("several nodes, whose host shows the run where they meet", {"page"});
      return several_nodes();
    }
    Result<void> page = add_page();
    if (!page) return page;
    note_no_effect("one node", {"bind", "rdzv-auth", "rdzv-encrypt"});
    if (!config().page || config().page->is_for_user_only)
      note_no_effect("one node", {"allow", "rdzv-secret-file"});
    if (const OptionValue* conf = given_conf()) {
      builder_.note(conf->origin + " has no effect: with one node there is no rendezvous");
    }
    if (is_standalone) return standalone();
    if (is_etcd()) return etcd_master();
    return backend_ == "static" ? static_master() : c10d_master();
  }

 private:
  LaunchConfig& config() { return builder_.config; }
  rendezvous::NetworkConfig& network() { return *config().network; }
  rendezvous::member::Config& member() { return network().member; }

  const OptionValue* given_conf() const {
    const OptionValue* conf = builder_.given("rdzv-conf");
    return conf != nullptr && !conf->text.empty() ? conf : nullptr;
  }
  const OptionValue* given_endpoint() const {
    const OptionValue* endpoint = builder_.given("rdzv-endpoint");
    return endpoint != nullptr && !endpoint->text.empty() ? endpoint : nullptr;
  }

  bool is_etcd() const { return EtcdOptions::is_backend(backend_); }

  // As under torchrun, which does not say so.
  void note_no_effect(const std::string& under, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (const OptionValue* value = builder_.given(name))
        builder_.note(value->origin + " has no effect with " + under);
    }
  }

  // The address at which the other nodes, and the workers, reach this node.
  Result<std::string> local_address(std::string fallback) const {
    const OptionValue* given = builder_.given("local-addr");
    if (given == nullptr || given->text.empty()) return fallback;
    std::string host = without_brackets(given->text);
    if (!builder_.machine.resolves(host)) return unresolvable(*given);
    const char* others = max_nodes_ > 1 ? "the other nodes" : "the workers";
    std::string warning = local_address_warning(*given, host, others, builder_.machine);
    if (!warning.empty()) builder_.config.warnings.push_back(std::move(warning));
    return host;
  }

  static Error unresolvable(const OptionValue& value) {
    return invalid(value.origin + "='" + value.text +
                   "': this machine cannot resolve that host into an address");
  }

  // One node.

  // An address may be reached by others: they see what they would see at a host of several nodes.
  Result<void> add_page() {
    rendezvous::PagePortConfig page;
    const OptionValue* given = builder_.given("page");
    if (given != nullptr && given->text == "none") return {};
    if (given != nullptr) {
      bool is_port = given->text.find_first_not_of("0123456789") == std::string::npos;
      Result<Endpoint> at = parse_endpoint(is_port ? "127.0.0.1:" + given->text : given->text, 0);
      if (!at || (at->host != "localhost" && !is_numeric_host(at->host)))
        return invalid_value(*given, "a port, a numeric address and a port, or none");
      page.listen = std::move(*at);
      page.is_for_user_only = is_port;
    }
    if (!page.is_for_user_only) {
      Result<void> allowed = read_ranges("allow", page.allow);
      if (!allowed) return allowed;
      page.secret = keys_.secret;
    }
    config().page = std::move(page);
    return {};
  }

  Result<void> standalone() {
    builder_.workers().run_id = builder_.machine.random_id();
    Result<std::string> host = local_address(config().master.host);
    if (!host) return host.error();
    config().master.host = std::move(*host);
    note_no_effect("--standalone",
                   {"rdzv-backend", "rdzv-endpoint", "rdzv-id", "master-addr", "master-port"});
    return {};
  }

  // Exactly what the user gave, as torchrun does; a port only where one was given.
  Result<void> static_master() {
    note_no_effect("the static backend", {"local-addr"});
    Result<Endpoint> master = static_endpoint(0);
    if (!master) return master.error();
    if (!builder_.machine.resolves(master->host)) {
      const OptionValue* endpoint = given_endpoint();
      return unresolvable(endpoint != nullptr ? *endpoint : *builder_.given("master-addr"));
    }
    config().master = std::move(*master);
    // No endpoint is given: torchrun takes it for --standalone, with a run id of its own.
    bool is_standalone = given_endpoint() == nullptr && builder_.given("master-port") == nullptr;
    if (is_standalone && builder_.given("rdzv-id") == nullptr)
      builder_.workers().run_id = builder_.machine.random_id();
    return {};
  }

  Result<Endpoint> static_endpoint(std::uint16_t default_port) {
    if (const OptionValue* endpoint = given_endpoint()) {
      if (endpoint->text.starts_with(kFolder)) {
        return invalid(endpoint->origin + "=" + endpoint->text +
                       ": a folder goes with --rdzv-backend=c10d");
      }
      if (has_several(*endpoint)) {
        return invalid(endpoint->origin + "=" + endpoint->text +
                       ": the workers of the static backend meet at one place; several go with "
                       "--rdzv-backend=c10d");
      }
      note_no_effect(endpoint->origin, {"master-addr", "master-port"});
      Result<Endpoint> parsed = parse_endpoint(endpoint->text, kStaticPort, least_port());
      if (!parsed) return invalid(endpoint->origin + "=" + to_string(parsed.error()));
      return parsed;
    }
    const OptionValue* host = builder_.given("master-addr");
    if (host != nullptr && host->text.empty()) return invalid_value(*host, "a host");
    Endpoint master{.host = without_brackets(builder_.text_of("master-addr", "127.0.0.1")),
                    .port = default_port};
    if (const OptionValue* port = builder_.given("master-port")) {
      Result<std::uint16_t> parsed = parse_port(port->text, least_port());
      if (!parsed) return invalid(port->origin + "=" + to_string(parsed.error()));
      master.port = *parsed;
    }
    return master;
  }

  static bool has_several(const OptionValue& endpoint) {
    return endpoint.text.find(',') != std::string::npos;
  }

  // Several nodes must know the port; for one, 0 is any that is free.
  std::uint16_t least_port() const { return max_nodes_ > 1 ? 1 : 0; }

  // Of a c10d run.
  Result<std::vector<Endpoint>> endpoints_of(const OptionValue& value) const {
    Result<std::vector<Endpoint>> endpoints = parse_endpoints(value, kElasticPort, least_port());
    if (!endpoints) return endpoints;
    const std::string what = value.origin + "=" + value.text + ": ";
    for (auto each = endpoints->begin(); each != endpoints->end(); ++each) {
      if (std::find(endpoints->begin(), each, *each) != each)
        return invalid(what + to_string(*each) + " is there twice");
    }
    if (endpoints->size() > rendezvous::kMaxEndpoints) {
      return invalid(what + std::to_string(endpoints->size()) + " endpoints; at most " +
                     std::to_string(rendezvous::kMaxEndpoints) + " are tried");
    }
    return endpoints;
  }

  Result<void> c10d_master() {
    note_no_effect("the c10d backend", {"master-addr", "master-port"});
    Result<std::string> host = local_address("127.0.0.1");
    if (!host) return host.error();
    config().master = {.host = std::move(*host), .port = 0};
    const OptionValue* endpoint = given_endpoint();
    if (endpoint == nullptr) return {};
    if (is_by_folder()) {
      builder_.note("one node needs no rendezvous: " + endpoint->origin + "=" + endpoint->text +
                    " is not read");
      return {};
    }
    Result<std::vector<Endpoint>> parsed = endpoints_of(*endpoint);
    if (!parsed) return parsed.error();
    if (!is_loopback_host(parsed->front().host)) {
      builder_.note("one node needs no rendezvous: " + endpoint->origin + "=" + endpoint->text +
                    " is not contacted");
    }
    return {};
  }

  Result<void> etcd_master() {
    note_no_effect("the " + backend_ + " backend", {"master-addr", "master-port"});
    Result<std::string> host = local_address("127.0.0.1");
    if (!host) return host.error();
    config().master = {.host = std::move(*host), .port = 0};
    Result<rendezvous::EtcdUse> etcd =
        etcd_.build(given_endpoint(), builder_.machine, config().notes);
    if (!etcd) return etcd.error();
    builder_.note("one node needs no rendezvous: " + to_string(*etcd) + " is not contacted");
    return {};
  }

  // Several nodes.

  Result<void> several_nodes() {
    if (policy_.quorum > max_nodes_) {
      return invalid(given_conf()->origin + ": quorum=" + std::to_string(policy_.quorum) +
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
    node.policy = policy_;
    member().stop_grace = config().agent.core.stop_grace;
    node.policy.max_restarts = config().max_restarts;
    member().run = builder_.workers().run_id;
    member().name = node.host + "-" + builder_.machine.random_id();
    member().read_timeout = read_timeout_;
    network().is_host = is_host_;
    // An allocation is there for its own run.
    if (!builder_.inherited("SLURM_JOB_ID").empty())
      network().patience_with_others = std::chrono::seconds(10);
    network().secret = std::move(keys_.secret);
    network().munge = std::move(keys_.munge);
    for (auto part : {&RendezvousOptions::node_rank,
                      backend_ == "static" ? &RendezvousOptions::static_rendezvous
                      : is_etcd()          ? &RendezvousOptions::etcd_rendezvous
                                           : &RendezvousOptions::c10d_rendezvous,
                      &RendezvousOptions::allowed_connections}) {
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
    if (!is_etcd() && is_loopback_host(network().endpoint.host) && given_endpoint() == nullptr &&
        builder_.given("master-addr") == nullptr) {
      builder_.note(
          "the rendezvous is at " + member().endpoint + ", so all nodes must be on this machine; " +
          (backend_ == "static" ? "--master-addr" : "--rdzv-endpoint") + " names another place");
    }
    return {};
  }

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
    if (!is_host_) network().is_host = slurm.is_host;
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
    return backend_ == "static" && builder_.given("node-rank") == nullptr && !rank_in_conf_;
  }

  Result<void> node_rank() {
    const OptionValue* value = builder_.given("node-rank");
    if (value == nullptr && backend_ != "static") return {};
    int rank = rank_in_conf_.value_or(0);
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
    note_no_effect("the static backend", {"local-addr"});
    Result<Endpoint> master = static_endpoint(kStaticPort);
    if (!master) return master.error();
    member().node.settings.master = *master;
    member().node.address = master->host;
    network().endpoint = std::move(*master);
    return {};
  }

  // Who hosts is written down in a folder: "file:/shared/run1", or a path with store_type=file.
  bool is_by_folder() const {
    const OptionValue* endpoint = given_endpoint();
    return store_type_ || (endpoint != nullptr && endpoint->text.starts_with(kFolder));
  }

  Result<void> rendezvous_by_folder() {
    const OptionValue* endpoint = given_endpoint();
    if (endpoint == nullptr) {
      return invalid(store_type_->origin +
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
    note_no_effect("the " + backend_ + " backend", {"master-addr", "master-port"});
    Result<std::string> address = local_address("");
    if (!address) return address.error();
    member().node.address = std::move(*address);
    if (store_type_) builder_.note(store_type_->origin + " has no effect with etcd");
    Result<rendezvous::EtcdUse> etcd =
        etcd_.build(given_endpoint(), builder_.machine, config().notes);
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
    if (is_host_ && *is_host_)
      builder_.note("is_host=1 has no effect with " + what + ": the first node that writes hosts");
    network().endpoint = {.host = std::move(host), .port = 0};
    network().may_stand_in = is_host_.value_or(true);
    member().has_registry = true;
    return {};
  }

  Result<void> c10d_rendezvous() {
    note_no_effect("the c10d backend", {"master-addr", "master-port"});
    Result<std::string> address = local_address("");
    if (!address) return address.error();
    member().node.address = std::move(*address);
    if (is_by_folder()) return rendezvous_by_folder();
    network().endpoint = {.host = "localhost", .port = kElasticPort};
    if (const OptionValue* endpoint = given_endpoint()) {
      Result<std::vector<Endpoint>> parsed = endpoints_of(*endpoint);
      if (!parsed) return parsed.error();
      for (const Endpoint& each : *parsed) {
        Result<void> connectable = check_connectable(each);
        if (!connectable) return connectable;
      }
      network().endpoint = parsed->front();
      if (parsed->size() > 1) return several_endpoints(std::move(*parsed));
    }
    network().may_stand_in = is_host_.value_or(true);
    return {};
  }

  // At each of them is a ddpd: two agents that host could both begin the run.
  Result<void> several_endpoints(std::vector<Endpoint> endpoints) {
    if (is_host_ && *is_host_) {
      return invalid(
          "is_host=1 does not go with several endpoints: a ddpd is to be at each of them; name one "
          "endpoint where an agent is to host");
    }
    note_no_effect("several endpoints, where no agent hosts", {"bind", "allow"});
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
    return read_ranges("allow", network().allow);
  }

  Result<void> read_ranges(const char* option, store::AllowList& ranges) {
    const OptionValue* given = builder_.given(option);
    if (given == nullptr) return {};
    auto list = store::AllowList::parse(given->text);
    if (!list) return invalid(given->origin + "=" + given->text + ": " + to_string(list.error()));
    ranges = std::move(*list);
    return {};
  }

  Result<void> worker_store_access() {
    rendezvous::WorkerStoreAccess& access = config().worker_store;
    access.any_user = builder_.given("allow-users") != nullptr;
    const OptionValue* allow = builder_.given("worker-store-allow");
    access.any_machine = allow != nullptr && allow->text == "any";
    return access.any_machine ? Result<void>() : read_ranges("worker-store-allow", access.machines);
  }

  // --rdzv-conf, torchelastic's keys.

  Result<void> read_settings() {
    const OptionValue* conf = given_conf();
    if (conf == nullptr) return {};
    auto settings = parse_rdzv_conf(*conf);
    if (!settings) return settings.error();
    for (const auto& [key, text] : *settings) {
      Result<void> read = read_setting(key, {text, conf->origin + ": " + key});
      if (!read) return read;
    }
    return {};
  }

  Result<void> read_setting(const std::string& key, const OptionValue& value) {
    if (key == "join_timeout") return read_seconds(value, policy_.join_timeout);
    if (key == "timeout") {
      bool is_join_timeout = backend_ == "static" || backend_ == "etcd";
      return is_join_timeout ? read_seconds(value, policy_.join_timeout) : Result<void>{};
    }
    if (key == "last_call_timeout") {
      if (value.text != "0") return read_seconds(value, policy_.last_call_timeout);
      policy_.last_call_timeout = {};
      return {};
    }
    if (key == "keep_alive_interval") return read_seconds(value, policy_.keep_alive_interval);
    if (key == "read_timeout") return read_seconds(value, read_timeout_);
    if (key == "keep_alive_max_attempt") {
      return read_whole(value, 2, policy_.keep_alive_max_attempt);
    }
    if (key == "lease_grace") {
      policy_.lease_grace = {};
      if (value.text == "0" || read_seconds(value, policy_.lease_grace)) return {};
      return invalid_value(value, "0 (none) or a number of seconds from 0.01 to 1000000");
    }
    if (key == "flap_limit") return read_whole(value, 0, policy_.flap_limit);
    if (key == "quorum") return read_whole(value, 1, policy_.quorum);
    if (key == "rank") {
      rank_in_conf_ = 0;
      return read_whole(value, 0, *rank_in_conf_);
    }
    if (key == "is_host") return read_is_host(value);
    if (is_etcd() && etcd_.take(key, value)) return {};
    if (key == "store_type" && value.text == "file") {
      store_type_ = value;
      return {};
    }
    if (key == "store_type" && value.text != "tcp") {
      return not_supported(value.origin + "=" + value.text, "tcp and file are");
    }
    static const std::set<std::string> kWithoutEffect = {
        "store_type", "close_timeout", "heartbeat_timeout", "use_libuv", "cas_backoff_max_seconds"};
    if (!kWithoutEffect.contains(key))
      builder_.note(value.origin + " is not known and has no effect");
    return {};
  }

  static Result<void> read_seconds(const OptionValue& value, Duration& duration) {
    Result<double> seconds = parse_seconds(value);
    if (!seconds) return seconds.error();
    constexpr double kLeast = 0.01;
    constexpr double kMost = 1'000'000;
    if (*seconds < kLeast || *seconds > kMost) {
      return invalid_value(value, "a number of seconds from 0.01 to 1000000");
    }
    duration = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
    return {};
  }
  static Result<void> read_whole(const OptionValue& value, int least, int& number) {
    Result<int> parsed = parse_whole(value, least, 1'000'000);
    if (!parsed) return parsed.error();
    number = *parsed;
    return {};
  }
  Result<void> read_is_host(const OptionValue& value) {
    static const std::set<std::string> kYes = {"1", "true", "t", "yes", "y"};
    static const std::set<std::string> kNo = {"0", "false", "f", "no", "n"};
    std::string text = value.text;
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (!kYes.contains(text) && !kNo.contains(text)) {
      return invalid_value(value, "true or false");
    }
    is_host_ = kYes.contains(text);
    return {};
  }

  ConfigBuilder& builder_;
  const int min_nodes_ = builder_.nnodes.first;
  const int max_nodes_ = builder_.nnodes.second;
  std::string backend_;
  rendezvous::Policy policy_;
  Duration read_timeout_ = std::chrono::seconds(60);
  std::optional<bool> is_host_;
  EtcdOptions etcd_;
  std::optional<OptionValue> store_type_;  // file
  std::optional<int> rank_in_conf_;
  NodeKeys keys_;
};

}  // namespace

Result<void> add_rendezvous(ConfigBuilder& builder) {
  return RendezvousOptions(builder).build();
}

}  // namespace ddprun::cli
