// SPDX-License-Identifier: BSD-3-Clause
//
// Where the nodes meet, and the workers: --rdzv-endpoint, --master-addr, --master-port and
// --local-addr, as they are given.  What they mean for a run of one node or of several is in
// one_node and rendezvous_options.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "cli/config/config_builder.h"
#include "cli/options/options.h"
#include "store/base/endpoint.h"
#include "store/base/error.h"
#include "store/decide/allow_list.h"

namespace ddprun::cli {

inline constexpr std::uint16_t kStaticPort = 29500;   // torchrun's
inline constexpr std::uint16_t kElasticPort = 29400;  // likewise
inline constexpr std::string_view kFolder = "file:";  // an endpoint that is a shared folder

// All functions that fail do so with one line for the user.  Lifetime: that of the builder.
class EndpointOptions {
 public:
  explicit EndpointOptions(ConfigBuilder& builder) : builder_(builder) {}

  // nullptr where it is not given, or empty.
  const OptionValue* endpoint() const { return given_text("rdzv-endpoint"); }
  const OptionValue* conf() const { return given_text("rdzv-conf"); }

  // Whether it is a shared folder: "file:/shared/run1".
  bool is_folder() const;

  // Notes which of the options `names` are given in vain, as under torchrun, which does not say so.
  void note_no_effect(const std::string& under, std::initializer_list<const char*> names);

  // The address at which the other nodes, and the workers, reach this node.
  Result<std::string> local_address(std::string fallback);

  // The one place of the static backend.
  Result<Endpoint> static_endpoint(std::uint16_t default_port);

  // Those of a c10d run, each once.
  Result<std::vector<Endpoint>> c10d_endpoints(const OptionValue& value) const;

 private:
  const OptionValue* given_text(const char* name) const {
    const OptionValue* value = builder_.given(name);
    return value != nullptr && !value->text.empty() ? value : nullptr;
  }
  bool is_one_node() const { return builder_.nnodes.second == 1; }
  std::uint16_t least_port() const;

  ConfigBuilder& builder_;
};

// Reads an option that lists ranges of addresses; nothing where it is not given.
Result<void> read_ranges(const ConfigBuilder& builder, const char* option,
                         store::AllowList& ranges);

// The error of a host that this machine cannot look up.
Error unresolvable(const OptionValue& value);

}  // namespace ddprun::cli
