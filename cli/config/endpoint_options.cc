// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/endpoint_options.h"

#include <algorithm>
#include <utility>

#include "cli/config/endpoint_list.h"
#include "cli/config/own_address.h"
#include "cli/options/parse.h"
#include "rendezvous/decide/messages.h"

namespace ddprun::cli {
namespace {

// torchrun wants an IPv6 address as "[::1]" where it stands alone, too.
std::string without_brackets(const std::string& host) {
  bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has_brackets ? host.substr(1, host.size() - 2) : host;
}

bool has_several(const OptionValue& endpoint) {
  return endpoint.text.find(',') != std::string::npos;
}

}  // namespace

bool EndpointOptions::is_folder() const {
  return endpoint() != nullptr && endpoint()->text.starts_with(kFolder);
}

void EndpointOptions::note_no_effect(const std::string& under,
                                     std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const OptionValue* value = builder_.given(name))
      builder_.note(value->origin + " has no effect with " + under);
  }
}

Result<std::string> EndpointOptions::local_address(std::string fallback) {
  const OptionValue* given = given_text("local-addr");
  if (given == nullptr) return fallback;
  std::string host = without_brackets(given->text);
  if (!builder_.machine.resolves(host)) return unresolvable(*given);
  const char* others = is_one_node() ? "the workers" : "the other nodes";
  std::string warning = local_address_warning(*given, host, others, builder_.machine);
  if (!warning.empty()) builder_.config.warnings.push_back(std::move(warning));
  return host;
}

Error unresolvable(const OptionValue& value) {
  return invalid(value.origin + "='" + value.text +
                 "': this machine cannot resolve that host into an address");
}

Result<Endpoint> EndpointOptions::static_endpoint(std::uint16_t default_port) {
  if (const OptionValue* endpoint = this->endpoint()) {
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

// Several nodes must know the port; for one, 0 is any that is free.
std::uint16_t EndpointOptions::least_port() const {
  return is_one_node() ? 0 : 1;
}

Result<std::vector<Endpoint>> EndpointOptions::c10d_endpoints(const OptionValue& value) const {
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

Result<void> read_ranges(const ConfigBuilder& builder, const char* option,
                         store::AllowList& ranges) {
  const OptionValue* given = builder.given(option);
  if (given == nullptr) return {};
  auto list = store::AllowList::parse(given->text);
  if (!list) return invalid(given->origin + "=" + given->text + ": " + to_string(list.error()));
  ranges = std::move(*list);
  return {};
}

}  // namespace ddprun::cli
