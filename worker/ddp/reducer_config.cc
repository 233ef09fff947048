// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/reducer_config.h"

#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

#include "worker/ddp/error.h"
#include "worker/ddp/named_tensor.h"

namespace ddprun::ddp {
namespace {

// A layout that was given must have each of `count` parameters once.
void check_layout(const BucketLayout& layout, std::size_t count) {
  std::vector<std::size_t> given;
  bool has_empty = false;
  for (const std::vector<std::size_t>& bucket : layout) {
    given.insert(given.end(), bucket.begin(), bucket.end());
    has_empty = has_empty || bucket.empty();
  }
  std::sort(given.begin(), given.end());
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (has_empty || given != all) {
    throw DdpError("bucket_layout is not one of this module, which has " + std::to_string(count) +
                   " parameters that need a gradient");
  }
}

// The weights whose gradients are sparse tensors.
std::unordered_set<c10::TensorImpl*> sparse_weights(const torch::nn::Module& module) {
  std::unordered_set<c10::TensorImpl*> weights;
  for (const auto& part : module.modules()) {
    if (auto* embedding = part->as<torch::nn::Embedding>()) {
      if (embedding->options.sparse()) weights.insert(embedding->weight.unsafeGetTensorImpl());
    } else if (auto* bag = part->as<torch::nn::EmbeddingBag>()) {
      if (bag->options.sparse()) weights.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  return weights;
}

// As Python does: one bucket until the first backward has shown the order in which gradients
// become ready, unless unused parameters are looked for, when buckets are never rebuilt.
BucketLayout initial_buckets(const ReducerConfig& config, const DataParallelOptions& options) {
  if (!options.bucket_layout.empty()) {
    check_layout(options.bucket_layout, config.parameters.size());
    return options.bucket_layout;
  }
  std::vector<std::size_t> limits{std::numeric_limits<std::int32_t>::max()};
  if (config.searches_unused) {
    limits = {static_cast<std::size_t>(config.first_bucket_cap_bytes),
              static_cast<std::size_t>(config.bucket_cap_bytes)};
  }
  BucketLayout buckets = std::get<0>(
      c10d::compute_bucket_assignment_by_size(config.parameters, limits, config.expect_sparse));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

}  // namespace

ReducerConfig reducer_config(const SyncedModule& module, const DataParallelOptions& options) {
  ReducerConfig config;
  std::unordered_set<c10::TensorImpl*> sparse = sparse_weights(module.whole());
  for (const NamedTensor& item : module.parameters()) {
    if (!item.tensor.requires_grad()) continue;
    config.parameters.push_back(item.tensor);
    config.names.push_back(item.name);
    config.expect_sparse.push_back(sparse.count(item.tensor.unsafeGetTensorImpl()) > 0);
  }
  if (config.parameters.empty())
    throw DdpError("the module has no parameter that needs a gradient");
  for (std::size_t i = 0; i < config.parameters.size(); ++i) {
    if (options.compression == Compression::None || !config.parameters[i].is_complex()) continue;
    throw DdpError("compression would drop the imaginary part of the gradients of " +
                   config.names[i] + ", which is complex");
  }

  if (options.bucket_cap_bytes < 0) {
    throw DdpError("bucket_cap_bytes is " + std::to_string(options.bucket_cap_bytes) +
                   ", and must be 0 (the default sizes) or more");
  }
  bool is_default_cap = options.bucket_cap_bytes == 0;
  config.bucket_cap_bytes =
      is_default_cap ? c10d::kDefaultBucketBytesCap : options.bucket_cap_bytes;
  config.first_bucket_cap_bytes =
      is_default_cap ? c10d::kDefaultFirstBucketBytes : config.bucket_cap_bytes;
  config.find_unused_parameters = options.find_unused_parameters;
  config.searches_unused = options.find_unused_parameters && !options.static_graph;
  config.gradient_as_bucket_view = options.gradient_as_bucket_view;
  config.batched_grad_copy = options.batched_grad_copy;
  config.lazy_bucket_allocation = options.lazy_bucket_allocation;

  config.buckets = initial_buckets(config, options);
  return config;
}

}  // namespace ddprun::ddp
