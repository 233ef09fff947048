// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/rendezvous_options.h"

#include <string>
#include <utility>

#include "cli/config/endpoint_options.h"
#include "cli/config/etcd_options.h"
#include "cli/config/node_keys.h"
#include "cli/config/one_node.h"
#include "cli/config/rdzv_conf.h"
#include "cli/config/several_nodes.h"
#include "cli/options/parse.h"

namespace ddprun::cli {
namespace {

Result<void> add_worker_store_access(ConfigBuilder& builder) {
  rendezvous::WorkerStoreAccess& access = builder.config.worker_store;
  access.any_user = builder.given("allow-users") != nullptr;
  const OptionValue* allow = builder.given("worker-store-allow");
  access.any_machine = allow != nullptr && allow->text == "any";
  return access.any_machine ? Result<void>()
                            : read_ranges(builder, "worker-store-allow", access.machines);
}

}  // namespace

Result<void> add_rendezvous(ConfigBuilder& builder) {
  builder.workers().run_id = builder.text_of("rdzv-id", "none");
  const std::string backend = builder.text_of("rdzv-backend", "static");
  const bool is_standalone = builder.given("standalone") != nullptr;
  builder.config.agent.rdzv_backend = is_standalone ? "c10d" : backend;
  const bool is_known =
      backend == "static" || backend == "c10d" || EtcdOptions::is_backend(backend);
  if (!is_standalone && !is_known) {
    return invalid_value(*builder.given("rdzv-backend"), "static, c10d, etcd or etcd-v2");
  }
  EndpointOptions endpoints(builder);
  Result<RdzvConf> conf = read_rdzv_conf(endpoints.conf(), backend, builder.config.notes);
  if (!conf) return conf.error();
  Result<void> access = add_worker_store_access(builder);
  if (!access) return access;
  Result<NodeKeys> keys = read_node_keys(builder);
  if (!keys) return keys.error();
  if (builder.nnodes.second == 1) return add_one_node(builder, endpoints, backend, *conf, *keys);
  if (is_standalone) {
    return invalid("--standalone is for one node; it does not go with " +
                   builder.given("nnodes")->origin + "=" + builder.given("nnodes")->text);
  }
  endpoints.note_no_effect("several nodes, whose host shows the run where they meet", {"page"});
  return add_several_nodes(builder, endpoints, backend, *conf, std::move(*keys));
}

}  // namespace ddprun::cli
