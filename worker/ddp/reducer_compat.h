// SPDX-License-Identifier: BSD-3-Clause
//
// Makes a c10d::Reducer under any torch from 2.6 on.  Its constructor has changed at least four
// times since; which one the headers at hand have is found by trying them at compile time, newest
// first.  An option that the torch at hand does not know is an error, never dropped.
#pragma once

#include <limits>
#include <memory>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>

#include "worker/ddp/error.h"
#include "worker/ddp/reducer_config.h"

namespace ddprun::ddp {

namespace detail {

using Params = std::vector<at::Tensor>;
using Buckets = std::vector<std::vector<std::size_t>>;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Names = std::unordered_map<std::size_t, std::string>;
using Caps = std::vector<std::int64_t>;

// Whether a Reducer can be made from what all of them since 2.7 take, followed by `Newer`.
template <class Reducer, class... Newer>
constexpr bool takes =
    std::is_constructible_v<Reducer, Params, Buckets, Group, std::vector<bool>, std::int64_t, bool,
                            bool, Names, std::int64_t, Newer...>;

// A template over the class, so that a form which it does not have is never instantiated.
template <class Reducer>
std::unique_ptr<Reducer> make_reducer(const ReducerConfig& config, const Group& group) {
  Names names;
  for (std::size_t i = 0; i < config.names.size(); ++i) names[i] = config.names[i];
  auto make = [&](auto... newer) {
    return std::make_unique<Reducer>(config.parameters, config.buckets, group, config.expect_sparse,
                                     config.bucket_cap_bytes, config.find_unused_parameters,
                                     config.gradient_as_bucket_view, std::move(names),
                                     config.first_bucket_cap_bytes, newer...);
  };
  // skip_all_reduce_unused_params and use_python_reducer stay off; an empty list of caps means
  // the two given.
  constexpr bool kOff = false;
  constexpr bool kHasLazy = takes<Reducer, bool, bool, Caps, bool, bool>;           // 2.15
  constexpr bool kHasBatched = kHasLazy || takes<Reducer, bool, bool, Caps, bool>;  // 2.13
  if (config.lazy_bucket_allocation && !kHasLazy) {
    throw DdpError("lazy_bucket_allocation needs torch 2.15 or newer");
  }
  if (config.batched_grad_copy && !kHasBatched) {
    throw DdpError("batched_grad_copy needs torch 2.13 or newer");
  }
  if constexpr (kHasLazy) {
    return make(kOff, kOff, Caps{}, config.batched_grad_copy, config.lazy_bucket_allocation);
  } else if constexpr (kHasBatched) {
    return make(kOff, kOff, Caps{}, config.batched_grad_copy);
  } else if constexpr (takes<Reducer, bool, bool, Caps>) {
    return make(kOff, kOff, Caps{});
  } else if constexpr (takes<Reducer, bool, bool>) {
    return make(kOff, kOff);
  } else if constexpr (takes<Reducer>) {
    return make();
  } else {  // 2.6: a limit for each bucket comes before the group
    std::vector<std::size_t> limits(config.buckets.size(), std::numeric_limits<std::size_t>::max());
    return std::make_unique<Reducer>(config.parameters, config.buckets, limits, group,
                                     config.expect_sparse, config.bucket_cap_bytes,
                                     config.find_unused_parameters, config.gradient_as_bucket_view,
                                     std::move(names), config.first_bucket_cap_bytes);
  }
}

}  // namespace detail

// Makes the Reducer of `config` over `group`.  Throws DdpError for an option that this torch lacks.
inline std::unique_ptr<c10d::Reducer> make_reducer(
    const ReducerConfig& config, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  return detail::make_reducer<c10d::Reducer>(config, group);
}

}  // namespace ddprun::ddp
