// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/own_address.h"

#include <system_error>

#include "cli/config/config_builder.h"
#include "store/base/endpoint.h"

namespace ddprun::cli {

Result<void> check_bind(const OptionValue& bind, const rendezvous::NetworkConfig& network,
                        const Machine& machine) {
  Result<void> listens = machine.can_listen(bind.text);
  if (listens) return {};
  bool hosts = network.is_host
                   ? *network.is_host
                   : network.member.has_registry || machine.is_here(network.endpoint.host);
  if (!hosts) return {};
  const std::string what = bind.origin + "=" + bind.text + ": ";
  if (listens.error().code != std::errc::address_not_available)
    return invalid(what + to_string(listens.error()));
  return invalid(what +
                 "no interface of this machine has this address; 0.0.0.0 stands for all of them");
}

std::string local_address_warning(const OptionValue& given, const std::string& host,
                                  const std::string& others, const Machine& machine) {
  if (!is_numeric_host(host) || machine.is_here(host)) return "";
  return given.origin + "=" + given.text + ": " + others +
         " are told this address, which no interface of this machine has";
}

}  // namespace ddprun::cli
