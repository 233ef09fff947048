// SPDX-License-Identifier: BSD-3-Clause
//
// Where one worker is while another one has waited in vain.  Pure.
#pragma once

#include <string>

#include "rendezvous/decide/findings.h"
#include "worker/process/decide/stack_text.h"

namespace ddprun::agent {

struct WorkerView {
  int rank = 0;
  int pid = 0;
  process::Activity activity;
  bool has_timed_out = false;  // by what it has written
};

// `in`: what the wait was in that is over; empty: not known.  A worker in another function of
// torch.distributed is elsewhere, but for sends and receives, which have different names on both
// sides.
rendezvous::Finding finding_of(const WorkerView& worker, const std::string& in);

// Of very many findings those that say most are kept.
void limit(rendezvous::Findings& findings);

}  // namespace ddprun::agent
