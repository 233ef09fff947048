// SPDX-License-Identifier: BSD-3-Clause
//
// Tells the other ranks which parameters this rank's backward pass has left out.
#pragma once

#include "worker/ddp/data_parallel_options.h"
#include "worker/ddp/gradient_watch.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/reducer_config.h"

namespace ddprun::ddp {

// Owns the watch over the gradients of one wrapped module, and reports each change to the group's
// PeerFailures.  Not made where parameters may be left out.
//
// Threads: used from one thread; the report is made on the thread of backward(), at its end.
class LeftOutReport {
 public:
  LeftOutReport(const ProcessGroup& group, const ReducerConfig& config,
                const DataParallelOptions& options);

  // The backward passes of this forward are to reach all parameters if they synchronise; else they
  // are not looked at.
  void after_forward(bool is_synchronised);

  // As GradientWatch::arrived().
  void arrived(std::size_t index) { watch_.arrived(index); }

 private:
  GradientWatch watch_;
};

}  // namespace ddprun::ddp
