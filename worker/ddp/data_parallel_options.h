// SPDX-License-Identifier: BSD-3-Clause
//
// What a program may choose about DistributedDataParallel and its join().
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/ddp/bucket_layout.h"
#include "worker/ddp/comm_hooks.h"
#include "worker/ddp/mixed_precision.h"

namespace ddprun::ddp {

struct DataParallelOptions {
  // As Python's device_ids=[rank]: the one device of the whole module, such as group.device().
  // Construction throws on every rank if a parameter or buffer is elsewhere, and forward() moves
  // the tensors that are given to it directly there.  Empty, as it must be for a module in parts on
  // several devices: nothing is moved.
  std::vector<at::Device> device_ids{};

  // Gives every rank rank 0's parameters and buffers at construction, and the strides of its
  // parameters.  Without it the ranks must have made equal ones themselves.
  bool init_sync = true;

  // Gives every rank rank 0's buffers (the running statistics of BatchNorm) before each forward
  // whose backward synchronises.  It costs a broadcast per step; a module without buffers pays
  // nothing.
  bool broadcast_buffers = true;

  // Parameters and buffers, by their names in the module, that the ranks do not keep equal: not at
  // construction, nor their gradients, nor before a forward; they may differ in shape, too.  For
  // parts of a model that each rank has of its own.  A name that the module lacks is an error.
  std::vector<std::string> ignored{};

  // Lets a forward leave parameters out.  Costs a walk over the graph and a small all-reduce per
  // step; without it, a parameter left out is an error that names it.
  bool find_unused_parameters = false;

  // The promise that every step uses the same parameters in the same way.  What is left out is then
  // found once, in the first step, at no cost later; a parameter may also be used several times in
  // a forward that re-enters the backward pass.  The first step reduces after the backward pass
  // instead of during it.
  bool static_graph = false;

  // Keeps each gradient inside its bucket rather than in memory of its own: saves that memory and a
  // copy.
  bool gradient_as_bucket_view = false;

  // Bytes of gradients reduced together.  Larger buckets use the network better and overlap less.
  // 0: a first bucket of 1 MiB, so that the reduction starts early, then 25 MiB each.
  std::int64_t bucket_cap_bytes = 0;

  // The buckets to begin with, as bucket_layout() gave them; empty: one bucket until the first
  // backward has shown the order of the gradients.  A run that goes on with the layout of the one
  // before it comes to the same bits.
  BucketLayout bucket_layout{};

  // Halves what is sent, at the price of precision.  Not together with comm_hook.
  Compression compression = Compression::None;

  // Reduces the buckets in its own way.
  CommHook comm_hook{};

  // Computes with parameters of low precision, copied from the module's own before each forward;
  // the optimizer sees the parameters and gradients of full precision once a backward pass has
  // reduced, and checkpoints always.  A step before that is lost, and makes the next forward throw.
  // Tensors that are given to forward() directly are cast as well, so that the
  // results are of low precision.  A forward under NoGradGuard does the same.  Excludes
  // comm_hook, compression, find_unused_parameters, static_graph, gradient_as_bucket_view,
  // batched_grad_copy and lazy_bucket_allocation.
  std::optional<MixedPrecision> mixed_precision{};

  // Copies gradients into a bucket in one operation; good with very many small parameters.
  bool batched_grad_copy = false;  // torch 2.13 or newer

  // Lets the ranks call collectives of the group between two backward passes that share the
  // parameters of one forward, as Python's DDP does; all ranks must split them alike.  Each such
  // collective then compares through the store what every rank has left for the next pass, so that
  // an error of a rank that has left out parameters comes only after the time-out.
  bool split_backward = false;

  // For debugging: before every so many forwards whose backward synchronises, compares the
  // parameters of the ranks by a hash of their bits; 0: never.  When they have drifted apart, every
  // rank's forward throws the same DdpError, which names the first parameter that differs and the
  // ranks.  Costs a pass over the parameters, a copy to the CPU included, and an all-gather of 8
  // bytes for each.  Not while joining: ranks without inputs fall behind then.
  std::int64_t check_replicas_every = 0;

  // Allocates buckets as gradients arrive and frees them after: less peak memory, more allocations.
  bool lazy_bucket_allocation = false;  // torch 2.15 or newer
};

struct JoinOptions {
  // Gradients are divided by the number of all ranks, so that each input weighs the same in every
  // step; false: by the number of those that still have inputs.
  bool divide_by_initial_world_size = true;

  // Ends on every rank with a DdpError that names the ranks, once one has no inputs and others do.
  bool throw_on_early_end = false;
};

}  // namespace ddprun::ddp
