// SPDX-License-Identifier: BSD-3-Clause
//
// Where one worker is while another one has waited in vain.  Pure.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/decide/findings.h"
#include "worker/process/decide/stack_text.h"

namespace ddprun::agent {

struct WorkerView {
  int rank = 0;
  int pid = 0;
  process::Activity activity;
  std::optional<rendezvous::TimedOutWait> timed_out{};  // by what it has written
  bool is_busy = false;                                 // its main thread uses CPU time
};

// `wait`: that is over.  A worker whose own wait is over is elsewhere only if that was in another
// function.  A worker in another function of torch.distributed is elsewhere, but for
// sends and receives, which have different names on both sides; and one that works, where nothing
// else is known of it and such a wait takes no CPU time.
rendezvous::Finding finding_of(const WorkerView& worker, const rendezvous::TimedOutWait& wait);

// Of very many findings those that say most are kept.
void limit(rendezvous::Findings& findings);

}  // namespace ddprun::agent
