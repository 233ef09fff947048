// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/one_node.h"

#include <string>
#include <utility>
#include <vector>

#include "cli/config/etcd_options.h"
#include "cli/options/parse.h"
#include "rendezvous/decide/network_config.h"

namespace ddprun::cli {
namespace {

class OneNode {
 public:
  OneNode(ConfigBuilder& builder, EndpointOptions& endpoints, const std::string& backend,
          const RdzvConf& conf, const NodeKeys& keys)
      : builder_(builder), endpoints_(endpoints), backend_(backend), conf_(conf), keys_(keys) {}

  Result<void> build() {
    Result<void> page = add_page();
    if (!page) return page;
    endpoints_.note_no_effect("one node", {"bind", "rdzv-auth", "rdzv-encrypt"});
    if (!config().page || config().page->is_for_user_only)
      endpoints_.note_no_effect("one node", {"allow", "rdzv-secret-file"});
    if (const OptionValue* conf = endpoints_.conf()) {
      builder_.note(conf->origin + " has no effect: with one node there is no rendezvous");
    }
    if (builder_.given("standalone") != nullptr) return standalone();
    if (EtcdOptions::is_backend(backend_)) return etcd_master();
    return backend_ == "static" ? static_master() : c10d_master();
  }

 private:
  LaunchConfig& config() { return builder_.config; }

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
      Result<void> allowed = read_ranges(builder_, "allow", page.allow);
      if (!allowed) return allowed;
      page.secret = keys_.secret;
    }
    config().page = std::move(page);
    return {};
  }

  Result<void> standalone() {
    builder_.workers().run_id = builder_.machine.random_id();
    Result<std::string> host = endpoints_.local_address(config().master.host);
    if (!host) return host.error();
    config().master.host = std::move(*host);
    endpoints_.note_no_effect(
        "--standalone", {"rdzv-backend", "rdzv-endpoint", "rdzv-id", "master-addr", "master-port"});
    return {};
  }

  // Exactly what the user gave, as torchrun does; a port only where one was given.
  Result<void> static_master() {
    endpoints_.note_no_effect("the static backend", {"local-addr"});
    Result<Endpoint> master = endpoints_.static_endpoint(0);
    if (!master) return master.error();
    if (!builder_.machine.resolves(master->host)) {
      const OptionValue* endpoint = endpoints_.endpoint();
      return unresolvable(endpoint != nullptr ? *endpoint : *builder_.given("master-addr"));
    }
    config().master = std::move(*master);
    // No endpoint is given: torchrun takes it for --standalone, with a run id of its own.
    bool is_standalone =
        endpoints_.endpoint() == nullptr && builder_.given("master-port") == nullptr;
    if (is_standalone && builder_.given("rdzv-id") == nullptr)
      builder_.workers().run_id = builder_.machine.random_id();
    return {};
  }

  Result<void> c10d_master() {
    endpoints_.note_no_effect("the c10d backend", {"master-addr", "master-port"});
    Result<std::string> host = endpoints_.local_address("127.0.0.1");
    if (!host) return host.error();
    config().master = {.host = std::move(*host), .port = 0};
    const OptionValue* endpoint = endpoints_.endpoint();
    if (endpoint == nullptr) return {};
    if (conf_.store_type || endpoints_.is_folder()) {
      builder_.note("one node needs no rendezvous: " + endpoint->origin + "=" + endpoint->text +
                    " is not read");
      return {};
    }
    Result<std::vector<Endpoint>> parsed = endpoints_.c10d_endpoints(*endpoint);
    if (!parsed) return parsed.error();
    if (!is_loopback_host(parsed->front().host)) {
      builder_.note("one node needs no rendezvous: " + endpoint->origin + "=" + endpoint->text +
                    " is not contacted");
    }
    return {};
  }

  Result<void> etcd_master() {
    endpoints_.note_no_effect("the " + backend_ + " backend", {"master-addr", "master-port"});
    Result<std::string> host = endpoints_.local_address("127.0.0.1");
    if (!host) return host.error();
    config().master = {.host = std::move(*host), .port = 0};
    Result<rendezvous::EtcdUse> etcd =
        conf_.etcd.build(endpoints_.endpoint(), builder_.machine, config().notes);
    if (!etcd) return etcd.error();
    builder_.note("one node needs no rendezvous: " + to_string(*etcd) + " is not contacted");
    return {};
  }

  ConfigBuilder& builder_;
  EndpointOptions& endpoints_;
  const std::string& backend_;
  const RdzvConf& conf_;
  const NodeKeys& keys_;
};

}  // namespace

Result<void> add_one_node(ConfigBuilder& builder, EndpointOptions& endpoints,
                          const std::string& backend, const RdzvConf& conf, const NodeKeys& keys) {
  return OneNode(builder, endpoints, backend, conf, keys).build();
}

}  // namespace ddprun::cli
