// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/endpoint_list.h"

#include <cstddef>
#include <string>
#include <utility>

#include "cli/config/config_builder.h"
#include "cli/options/parse.h"

namespace ddprun::cli {

Result<std::vector<Endpoint>> parse_endpoints(const OptionValue& value, std::uint16_t default_port,
                                              std::uint16_t least_port) {
  const std::vector<std::string> parts = split_commas(value.text);
  std::vector<Endpoint> endpoints;
  for (const std::string& part : parts) {
    if (part.empty() && parts.size() > 1) {
      return invalid(value.origin + "=" + value.text + ": endpoint " +
                     std::to_string(endpoints.size() + 1) + " of " + std::to_string(parts.size()) +
                     " is empty; they are HOST:PORT,HOST:PORT");
    }
    Result<Endpoint> parsed = parse_endpoint(part, default_port, least_port);
    if (!parsed) return invalid(value.origin + "=" + to_string(parsed.error()));
    endpoints.push_back(std::move(*parsed));
  }
  return endpoints;
}

}  // namespace ddprun::cli
