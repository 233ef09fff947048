// SPDX-License-Identifier: BSD-3-Clause
//
// What a c10d::Reducer is made from: the parameters that are reduced and the buckets to begin with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/ddp/data_parallel_options.h"
#include "worker/ddp/synced_module.h"

namespace ddprun::ddp {

struct ReducerConfig {
  std::vector<at::Tensor> parameters;  // trainable, without duplicates
  std::vector<std::string> names;      // of the parameters, for messages
  BucketLayout buckets;                // last layers first
  std::vector<bool> expect_sparse;     // per parameter
  std::int64_t first_bucket_cap_bytes = 0;
  std::int64_t bucket_cap_bytes = 0;
  bool find_unused_parameters = false;
  bool searches_unused = false;  // before each backward, by a walk over the graph
  bool gradient_as_bucket_view = false;
  bool batched_grad_copy = false;       // torch 2.13 or newer
  bool lazy_bucket_allocation = false;  // torch 2.15 or newer
};

// Reads the module's parameters that need a gradient now; talks to no other rank.  Throws DdpError
// if there is none, for a complex one with compression, and for a bucket_layout that is not of this
// module.
ReducerConfig reducer_config(const SyncedModule& module, const DataParallelOptions& options);

}  // namespace ddprun::ddp
