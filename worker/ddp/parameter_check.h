// SPDX-License-Identifier: BSD-3-Clause
//
// Notices what c10d's Reducer does not: a parameter that was converted, moved or unfrozen after its
// module was wrapped.  Its gradients would stay on their rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "worker/ddp/reducer_config.h"
#include "worker/ddp/synced_module.h"

namespace ddprun::ddp {

// Threads: used from one thread.
class ParameterCheck {
 public:
  // `config` has the parameters of `module` whose gradients are reduced.  With `changes_dtypes`
  // (mixed_precision), these are looked after elsewhere.
  ParameterCheck(const SyncedModule& module, const ReducerConfig& config, bool changes_dtypes);
  ~ParameterCheck();
  ParameterCheck(const ParameterCheck&) = delete;
  ParameterCheck& operator=(const ParameterCheck&) = delete;

  // Throws DdpError that names the first such parameter.  Takes some nanoseconds for each.
  void run() const;

 private:
  struct Reduced;
  struct Frozen {
    std::string name;
    at::Tensor tensor;
  };
  std::vector<Reduced> reduced_;
  std::vector<Frozen> frozen_;
};

}  // namespace ddprun::ddp
