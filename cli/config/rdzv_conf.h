// SPDX-License-Identifier: BSD-3-Clause
//
// --rdzv-conf: torchelastic's settings of a rendezvous by their names, and our own.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/etcd_options.h"
#include "cli/options/options.h"
#include "rendezvous/decide/messages.h"
#include "store/base/error.h"
#include "store/base/time.h"

namespace ddprun::cli {

struct RdzvConf {
  rendezvous::Policy policy{};
  Duration read_timeout = std::chrono::seconds(60);
  std::optional<bool> is_host{};
  std::optional<OptionValue> store_type{};  // file; none for tcp
  std::optional<int> rank{};                // with the static backend: --node-rank
  EtcdOptions etcd{};
};

// Reads "K=V,...", or nothing for nullptr.  Fails with one line that names the first value that is
// not accepted.  A name that nobody knows has no effect, as under torchrun; it is put into `notes`.
Result<RdzvConf> read_rdzv_conf(const OptionValue* given, const std::string& backend,
                                std::vector<std::string>& notes);

}  // namespace ddprun::cli
