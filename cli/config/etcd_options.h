// SPDX-License-Identifier: BSD-3-Clause
//
// --rdzv-backend=etcd and etcd-v2: where etcd is, and how it is reached.  Both spellings mean the
// same; torchrun's names of the two for certificates are taken with either.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/config/launch_config.h"
#include "cli/options/options.h"
#include "rendezvous/decide/network_config.h"

namespace ddprun::cli {

class EtcdOptions {
 public:
  static bool is_backend(const std::string& name) { return name == "etcd" || name == "etcd-v2"; }

  // A setting of --rdzv-conf; `value.origin` names it in errors.  False: it is none of etcd's.
  bool take(const std::string& key, const OptionValue& value);

  // nullptr for an endpoint that is not given: localhost.  Files are looked at.  What has no effect
  // is put into `notes`.
  Result<rendezvous::EtcdUse> build(const OptionValue* endpoint, const Machine& machine,
                                    std::vector<std::string>& notes) const;

 private:
  Result<void> add_members(rendezvous::EtcdUse& etcd, const OptionValue* endpoint) const;
  Result<void> add_tls(rendezvous::EtcdUse& etcd, const Machine& machine,
                       std::vector<std::string>& notes) const;
  Result<void> add_user(rendezvous::EtcdUse& etcd, const Machine& machine) const;
  Result<void> add_prefix(rendezvous::EtcdUse& etcd) const;

  std::optional<OptionValue> protocol_;
  std::optional<OptionValue> ca_;
  std::optional<OptionValue> certificate_;
  std::optional<OptionValue> key_;
  std::optional<OptionValue> user_;
  std::optional<OptionValue> password_;
  std::optional<OptionValue> password_file_;
  std::optional<OptionValue> prefix_;
};

// "etcd at h1:2379,h2:2379", as people call it.
std::string to_string(const rendezvous::EtcdUse& etcd);

}  // namespace ddprun::cli
