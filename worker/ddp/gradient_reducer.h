// SPDX-License-Identifier: BSD-3-Clause
//
// The reduction of one wrapped module's gradients: c10d's Reducer, and what it must be told and
// asked around each forward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/ddp/data_parallel_options.h"
#include "worker/ddp/gradient_watch.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/reducer_config.h"

namespace c10d {
class Logger;
class Reducer;
}  // namespace c10d

namespace ddprun::ddp {

// Owns the Reducer, its logger and its comm hook.
//
// Threads: used from one thread.  Errors: what the reduction meets comes out of backward().
class GradientReducer {
 public:
  // Talks to no other rank.  Throws DdpError for an option that this torch lacks.
  GradientReducer(const ProcessGroup& group, const std::string& module_name,
                  const ReducerConfig& config, const DataParallelOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Before a forward whose backward synchronises.  Makes the Reducer anew where the first backward
  // of a static graph has failed, or passes have gone by before it: it would never reduce again.
  void prepare_for_forward();

  // Before a forward whose backward does not synchronise.
  void pass_by();

  // Before every forward: makes the buckets anew, once the order in which the gradients become
  // ready is known.  The ranks do so together.
  void rebuild_buckets();

  // After a forward whose backward synchronises; may replace `outputs`, the tensors of its result,
  // by equal ones.  A backward() from them that comes after the reduction throws DdpError.
  void prepare_for_backward(std::vector<at::Tensor>& outputs);

  // After a forward whose backward does not synchronise.
  void ignore_backward();

  // The sizes of the buckets in bytes, in the order in which they are reduced.
  std::vector<std::int64_t> bucket_sizes() const;

  // The buckets of the next step.  All ranks call it.  Throws DdpError with lazy_bucket_allocation.
  BucketLayout bucket_layout();

  // While some ranks have no inputs, `active_ranks` take the next step; the sum of their gradients
  // is divided by that number or by the world size, which is what all other steps do.
  void set_active_ranks(std::size_t active_ranks, bool divide_by_world_size);
  void reset_active_ranks();

  // Whether the graph is a static one and the step that learns it is still to come.
  bool awaits_first_step() const;

  // For parameters that have other gradient accumulators than at construction: called on the thread
  // of backward() when the gradient of the parameter `index` is complete.
  void gradient_is_there(std::size_t index);

  // Takes part in the reductions of one backward pass of the other ranks, with zeros.
  void reduce_zeros();

 private:
  void make();
  void register_comm_hook();

  template <class Action>
  void begin_anew(Action action);
  void pass_ended(const std::vector<std::size_t>& missing);

  ProcessGroup group_;
  std::string module_name_;
  ReducerConfig config_;
  DataParallelOptions options_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // after the Reducer, which it looks at when it ends
  GradientWatch::AtEnd left_out_;         // null where parameters may be left out
  GradientWatch watch_;                   // calls pass_ended()
  // Passes have gone by, which a Reducer that learns a static graph counts as parts of it.
  bool has_passed_by_ = false;
  bool has_reduced_ = false;
};

}  // namespace ddprun::ddp
